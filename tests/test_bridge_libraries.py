"""Forks in a framework that is not part of the source: the callbacks, data and models that the program gave it."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Site
from looping import for_each
from small_jobs import TORCH, SmallJob

PACKAGES = "/opt/lib/python3.12/site-packages"
RUN = {"name": "run", "filename": f"{PACKAGES}/trainers/loop.py", "line": 412}
SAME_NAME = {"name": "run", "filename": f"{PACKAGES}/trainers/train.py", "line": 412}


def line_of(source: str, mark: str) -> int:
    return next(number for number, line in enumerate(source.split("\n"), 1) if line.endswith(f"# {mark}"))


def frame(source: str, name: str, mark: str) -> dict[str, object]:
    return {"name": name, "filename": "/train/train.py", "line": line_of(source, mark)}


def sites_of(
    source: str,
    folder: Path,
    odd: Sequence[object],
    usual: Sequence[object],
    ops: tuple[str, str] = ("broadcast", "barrier"),
) -> tuple[Site, ...]:
    """Rank 2 made its call from the frames `odd` (innermost first), the others from `usual`."""
    (folder / "train.py").write_text(source)
    job = SmallJob(4)
    for _ in range(3):
        job.op(frames=[TORCH, RUN, frame(source, "main", "main")])
    job.op([2], ops[0], size=8, frames=[TORCH, *odd], done=False)
    job.op([0, 1, 3], ops[1], size=4, frames=[TORCH, *usual], done=False)
    return forkpoint.diagnose(job.capture(), source=[str(folder)]).sites


def program(text: str) -> str:
    return textwrap.dedent(text).lstrip()


ON_ONE_RANK = program("""
    from trainers import Callback, Trainer, rank_zero_only

    class Report(Callback):
        def on_batch_end(self, trainer, module, step):
            self.write(module, step)  # calls

        {decorator}
        def write(self, module, step):
            self.rows.append(module.metric.compute())  # odd

    def main():
        Trainer(callbacks=[Report()]).fit()  # main
""")


def in_callback(source: str, folder: Path, library: dict[str, object] = RUN) -> tuple[Site, ...]:
    main = frame(source, "main", "main")
    inside = [frame(source, "write", "odd"), frame(source, "on_batch_end", "calls")]
    return sites_of(source, folder, [*inside, library, main], [library, main])


def test_a_callback_that_runs_on_one_rank_is_named_with_its_decorator(tmp_path: Path) -> None:
    first = in_callback(ON_ONE_RANK.format(decorator="@rank_zero_only"), tmp_path)[0]

    assert (first.line, first.function) == (7, "Report.write")
    assert "rank 2 communicates in write(), which the other ranks do not run" in (first.why or "")


def test_a_callback_without_it_is_only_said_to_have_been_called(tmp_path: Path) -> None:
    first = in_callback(ON_ONE_RANK.format(decorator="# all ranks"), tmp_path)[0]

    assert first.why == "a library called this on rank 2 while ranks 0-1,3 did something else in it"


def test_a_file_of_a_library_that_has_the_name_of_one_of_the_source_hides_no_site(tmp_path: Path) -> None:
    first = in_callback(ON_ONE_RANK.format(decorator="@rank_zero_only"), tmp_path, SAME_NAME)[0]

    assert first.function == "Report.write"


STEERING = program("""
    import time
    from trainers import Callback, Trainer

    class Evaluate(Callback):
        def on_step_end(self, args, state, control):
            if {condition}:
                control.should_evaluate = True
            if time.monotonic() > self.last:
                self.last = time.monotonic()

    def main():
        Trainer(callbacks=[Evaluate()]).fit()  # main
""")


def steered(condition: str, folder: Path) -> tuple[Site, ...]:
    source = STEERING.format(condition=condition)
    main, elsewhere = frame(source, "main", "main"), {**RUN, "line": 430}
    return sites_of(source, folder, [RUN, main], [elsewhere, main])


def test_a_callback_that_tells_the_library_what_to_do_by_its_clock_is_shown(tmp_path: Path) -> None:
    first = steered("time.monotonic() - self.last > 600", tmp_path)[0]

    assert first.condition == "time.monotonic() - self.last > 600"
    assert "decides whether it sets `control.should_evaluate`" in (first.why or "")


def test_neither_one_that_all_ranks_decide_alike_nor_one_that_tells_the_library_nothing(tmp_path: Path) -> None:
    sites = steered("state.step % 100 == 0", tmp_path)

    assert all(site.condition is None for site in sites)


DATA = program("""
    from torch.utils.data import IterableDataset
    from trainers import Trainer

    class Windows(IterableDataset):
        def __init__(self, files, rank, world):
            self.files = {files}

        def __iter__(self):
            for path in self.files:
                yield path

    def main(rank, world):
        Trainer(Windows(list_files(), rank, world)).fit()  # main
""")


@for_each(("files", "shown"), [("files[rank::world]", True), ("files[:12]", False)])
def test_data_that_is_dealt_to_ranks_is_shown_where_a_library_runs_over_it(
    files: str, shown: bool, tmp_path: Path
) -> None:
    source = DATA.format(files=files)
    main, elsewhere = frame(source, "main", "main"), {**RUN, "line": 430}

    sites = sites_of(source, tmp_path, [RUN, main], [elsewhere, main])

    assert any(site.condition == "self.files" for site in sites) is shown


PASSES = program("""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Ranker(Base):
        def forward(self, batch):
            present = batch["image"]
            if {condition}:
                return self.tower(present)
            return self.plain(batch)

    def main(batches):
        model = DDP(Ranker())
        for step, batch in enumerate(batches):
            loss = model(batch)
            loss.backward()  # main
            dist.reduce(loss, 0)  # odd
""")


@for_each(("condition", "shown"), [("present.any()", True), ("self.training", False)])
def test_a_branch_of_forward_that_depends_on_the_batch_is_shown_where_gradients_are_missing(
    condition: str, shown: bool, tmp_path: Path
) -> None:
    source = PASSES.format(condition=condition)

    sites = sites_of(
        source, tmp_path, [frame(source, "main", "odd")], [frame(source, "main", "main")], ("reduce", "all_reduce")
    )

    assert [site.condition == condition for site in sites[:1]] == [shown]
    assert not shown or "a rank may skip parameters" in (sites[0].why or "")


NO_SYNC = program("""
    import contextlib
    import torch.distributed as dist

    class Budget:
        @contextlib.contextmanager
        def accumulating(self, batch, step):
            self.seen += int(batch["mask"].sum())
            if {condition}:
                yield True
            else:
                with self.model.no_sync():
                    yield False

    def main(model, loader, budget: Budget):
        for step, batch in enumerate(loader):
            with budget.accumulating(batch, step):
                loss = model(batch)
                loss.backward()  # main
            dist.reduce(loss, 0)  # odd
""")


@for_each(("condition", "shown"), [("self.seen >= self.target", True), ("step % 4 == 3", False)])
def test_what_decides_whether_a_pass_reduces_gradients_is_shown(condition: str, shown: bool, tmp_path: Path) -> None:
    source = NO_SYNC.format(condition=condition)

    sites = sites_of(
        source, tmp_path, [frame(source, "main", "odd")], [frame(source, "main", "main")], ("reduce", "all_reduce")
    )

    told = "decides whether the backward pass reduces gradients"
    assert any(site.condition == condition and told in (site.why or "") for site in sites) is shown
