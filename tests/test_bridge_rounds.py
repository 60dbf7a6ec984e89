"""Loops, earlier rounds and wrappers: what may be said of them, and what not."""

import textwrap
from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Cause, Verdict
from small_jobs import TORCH, SmallJob


def line_of(source: str, mark: str) -> int:
    return next(number for number, line in enumerate(source.split("\n"), 1) if line.endswith(f"# {mark}"))


def diagnosed(source: str, folder: Path, ops: tuple[str, str] = ("broadcast", "barrier"), size: int = 8) -> Verdict:
    """Frames are marked `FUNCTION SIDES`; called functions stand above their callers. All made the calls marked `before`."""
    (folder / "train.py").write_text(source)

    def frames(side: str) -> list[object]:
        marked = [line.partition("# ")[2].split() for line in source.split("\n")]
        found = [(words[0], number) for number, words in enumerate(marked, 1) if side in words]
        return [TORCH, *({"name": n, "filename": "/train/train.py", "line": at} for n, at in found)]

    job = SmallJob(4)
    for _ in range(3):
        job.op(frames=frames("before"))
    job.op([2], ops[0], size=size, frames=frames("odd"), done=False)
    job.op([0, 1, 3], ops[1], size=4, frames=frames("usual"), done=False)
    return forkpoint.diagnose(job.capture(), source=[str(folder)])


def program(text: str) -> str:
    return textwrap.dedent(text).lstrip()


LAYERS = program("""
    import torch.distributed as dist

    def main(layers, x, tuned):
        dist.all_reduce(x)  # main before
        for layer in layers:
            dist.barrier()  # main usual
        dist.broadcast(x, 0)  # main odd
""")


def test_a_loop_that_nothing_shows_to_differ_is_neither_told_as_known_nor_changed(tmp_path: Path) -> None:
    verdict = diagnosed(LAYERS, tmp_path)

    assert not any((site.why or "").startswith("the loop over") for site in verdict.sites)
    assert not any(fix.patch for fix in verdict.fixes)
    assert "layers" not in verdict.headline


MADE = program("""
    import torch.distributed as dist

    def train(shelf, x):
        for book in shelf.pages(1):  # the loop
            dist.barrier()  # train usual

    def main(rank, x):
        shelf = Shelf({given})
        dist.all_reduce(x)  # main before
        train(shelf, x)  # main usual
        dist.broadcast(x, 0)  # main odd
""")


def test_a_loop_over_what_was_made_with_the_rank_has_a_reason(tmp_path: Path) -> None:
    first = diagnosed(MADE.format(given="Clips(rank)"), tmp_path).sites[0]

    assert first.line == line_of(MADE, "the loop")
    assert "`Shelf(Clips(rank))` (train.py:8): it is made with this rank's number" in (first.why or "")


def test_a_loop_over_what_was_made_without_it_has_none(tmp_path: Path) -> None:
    sites = diagnosed(MADE.format(given="Clips(7)"), tmp_path).sites

    assert not any("made with this rank's number" in (site.why or "") for site in sites)


SKIPPED_BEFORE = program("""
    import torch.distributed as dist

    def update(label, x):
        if label.sum() == 0:
            return
        dist.all_gather([x], x)  # update usual before

    def train_epoch(loader, x):
        for batch in loader:
            dist.reduce(x, 0)

    def main(loader, held_out, x):
        train_epoch(loader, x)
        for label in held_out:
            update(label, x)  # main usual before
        dist.all_reduce(x)  # main odd
""")


def test_a_call_that_was_skipped_is_found_at_what_skips_it_and_not_at_the_loop_around(tmp_path: Path) -> None:
    sites = diagnosed(SKIPPED_BEFORE, tmp_path, ("all_reduce", "all_gather")).sites

    assert sites[0].condition == "label.sum() == 0"
    assert "`label.sum() == 0` was true on rank 2, which took the `return`" in (sites[0].why or "")


def test_a_loop_that_both_sides_had_left_before_is_no_earlier_round(tmp_path: Path) -> None:
    sites = diagnosed(SKIPPED_BEFORE, tmp_path, ("all_reduce", "all_gather")).sites

    assert not any(site.function == "train_epoch" for site in sites)


DISPATCHED = program("""
    import torch.distributed as dist

    class Sync:
        def embedding(self, x):
            dist.barrier()  # embedding usual

        def norms(self, x):
            dist.broadcast(x, 0)  # norms odd

        def finish(self, x):
            dist.all_reduce(x)  # finish before
            for name in {names}:
                getattr(self, name)(x)  # finish usual odd
""")


def test_sides_at_different_elements_of_a_set_are_told_so(tmp_path: Path) -> None:
    first = diagnosed(DISPATCHED.format(names='{"embedding", "norms"}'), tmp_path).sites[0]

    assert first.condition == '{"embedding", "norms"}'
    assert "ranks are at different elements of" in (first.why or "")
    assert "the order of a set differs between processes" in (first.why or "")


def test_without_a_reason_for_the_order_it_is_left_open_what_differs(tmp_path: Path) -> None:
    sites = diagnosed(DISPATCHED.format(names='("embedding", "norms")'), tmp_path).sites

    told = [site.why or "" for site in sites if "different elements" in (site.why or "")]
    assert all(why.endswith("its order or its elements differ") for why in told)


HANDED_ON = program("""
    import torch
    import torch.distributed as dist

    def concatenate(parts):
        return torch.cat(parts) if parts else torch.tensor([])

    def gather(x):
        out = torch.empty_like(x)
        dist.all_reduce({reduced})  # gather usual odd

    def main(parts, x):
        dist.all_reduce(x)  # main before
        gather(concatenate(parts))  # main usual odd
""")


def test_sizes_that_a_wrapper_was_given_are_followed_to_what_chose_them(tmp_path: Path) -> None:
    verdict = diagnosed(HANDED_ON.format(reduced="out"), tmp_path, ("all_reduce", "all_reduce"))

    assert verdict.cause is Cause.METADATA_MISMATCH
    assert verdict.sites[0].condition == "parts"
    assert "`parts` decides what the call is given" in (verdict.sites[0].why or "")


def test_a_function_that_brings_its_own_tensor_is_not_left_for_its_caller(tmp_path: Path) -> None:
    verdict = diagnosed(HANDED_ON.format(reduced="STATE.total"), tmp_path, ("all_reduce", "all_reduce"))

    assert verdict.sites[0].function == "gather"
