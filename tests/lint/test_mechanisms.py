"""How real jobs came to hang, each as a small program; and the same program mended."""

import textwrap
from pathlib import Path

from forkpoint.lint import Options, lint
from looping import for_each
from tests.lint.samples import program_of

HEAD = """\
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""

# what: (rule, the program, the mended program)
MECHANISMS = {
    "an agreement that only one rank asks for": (
        "collective-under-branch",
        """
        from forkpoint.consensus import any_rank

        def train(model, loader):
            for batch in loader:
                loss = model(batch)
                if dist.get_rank() == 0:
                    stop = any_rank(bool(torch.isnan(loss)), "skip")
        """,
        """
        from forkpoint.consensus import any_rank

        def train(model, loader):
            for batch in loader:
                loss = model(batch)
                if any_rank(bool(torch.isnan(loss)), "skip"):
                    continue
                dist.all_reduce(loss)
        """,
    ),
    "validation with the wrapped model on one rank": (
        "collective-under-branch",
        """
        def main(net, gpu, loader):
            model = DDP(net)
            for batch in loader:
                if gpu.rank == 0:
                    model(batch)
        """,
        """
        def main(net, gpu, loader):
            model = DDP(net)
            for batch in loader:
                if gpu.rank == 0:
                    model.module(batch)
        """,
    ),
    "a metric that is read on one rank": (
        "collective-under-branch",
        """
        from torchmetrics import MetricCollection

        def test(rank, parts):
            metrics = MetricCollection(parts)
            if rank == 0:
                print(metrics.compute())
        """,
        """
        from torchmetrics import MetricCollection

        def test(rank, parts):
            metrics = MetricCollection(parts)
            values = metrics.compute()
            if rank == 0:
                print(values)
        """,
    ),
    "a trainer's gather on the first rank": (
        "collective-under-branch",
        """
        class Module:
            def on_end(self, x):
                if self.trainer.is_global_zero:
                    self.all_gather(x)
        """,
        """
        class Module:
            def on_end(self, x):
                x = self.all_gather(x)
                if self.trainer.is_global_zero:
                    print(x)
        """,
    ),
    "a batch skipped for its loss": (
        "exit-before-collective",
        """
        def train(model, loader):
            for batch in loader:
                loss = model(batch)
                if not torch.isfinite(loss):
                    continue
                loss.backward()
        """,
        """
        def train(model, loader):
            for batch in loader:
                loss = model(batch)
                bad = (~torch.isfinite(loss)).int()
                dist.all_reduce(bad)
                if bad.item():
                    continue
                loss.backward()
        """,
    ),
    "out of memory on one rank, passed over": (
        "exception-swallowed",
        """
        def train(model, loader):
            for batch in loader:
                try:
                    model(batch).backward()
                except torch.cuda.OutOfMemoryError:
                    torch.cuda.empty_cache()
        """,
        """
        def train(model, loader):
            for batch in loader:
                model(batch).backward()
        """,
    ),
    "a checkpoint when this rank's clock says so": (
        "call-under-branch",
        """
        def save(model):
            dist.barrier()

        def train(model, last):
            if time.time() - last > 600:
                save(model)
        """,
        """
        def save(model):
            dist.barrier()

        def train(model, last):
            due = torch.tensor(time.time() - last > 600)
            dist.broadcast(due, src=0)
            if due.item():
                save(model)
        """,
    ),
    "early stopping that only the first rank knows of": (
        "exit-before-collective",
        """
        def fit(stopper, loss, epochs, rank):
            for epoch in range(epochs):
                loss.backward()
                stop = False
                if rank == 0:
                    stop = stopper(epoch)
                if stop:
                    break
        """,
        """
        def fit(stopper, loss, epochs, rank):
            for epoch in range(epochs):
                loss.backward()
                stop = [stopper(epoch) if rank == 0 else None]
                dist.broadcast_object_list(stop)
                if stop[0]:
                    break
        """,
    ),
    "a barrier only where an upload has finished": (
        "collective-under-branch",
        """
        def wait(self, future):
            if future.done():
                future.result()
                dist.barrier()
        """,
        """
        def wait(self, future):
            future.result()
            dist.barrier()
        """,
    ),
    "statistics reduced in the order of a set": (
        "order-differs",
        """
        def reduce_all(values):
            names = {value.name for value in values}
            for name in names:
                dist.all_reduce(values[name])
        """,
        """
        def reduce_all(values):
            names = {value.name for value in values}
            for name in sorted(names):
                dist.all_reduce(values[name])
        """,
    ),
    "a group that each rank makes from its own list": (
        "group-on-some-ranks",
        """
        def copy(group):
            return dist.new_group(dist.get_process_group_ranks(group))
        """,
        """
        def copy(group, all_lists):
            groups = [dist.new_group(ranks) for ranks in all_lists]
            return groups[dist.get_rank(group)]
        """,
    ),
    "an exit by what a lock says at this moment": (
        "exit-before-collective",
        """
        def move(self, x):
            if not self.lock.acquire(blocking=False):
                return
            dist.all_reduce(x)
        """,
        """
        def move(self, x):
            self.lock.acquire()
            dist.all_reduce(x)
        """,
    ),
    "the group taken down by the rank that fails": (
        "collective-in-handler",
        """
        def main(train):
            try:
                train()
            finally:
                dist.destroy_process_group()
        """,
        """
        def main(train):
            train()
            dist.destroy_process_group()
        """,
    ),
    "a check on one rank that raises": (
        "raise-on-some-ranks",
        """
        def save(path, rank):
            if rank == 0:
                if path.exists():
                    raise FileExistsError(path)
            dist.barrier()
        """,
        """
        def save(path, rank):
            there = [path.exists() if rank == 0 else None]
            dist.broadcast_object_list(there)
            if there[0]:
                raise FileExistsError(path)
            dist.barrier()
        """,
    ),
}


def rules_in(folder: Path, source: str) -> set[str]:
    program = program_of(folder, HEAD + textwrap.dedent(source))
    return {v.rule for v in lint(program, Options()).violations}


@for_each("what", MECHANISMS)
def test_it_is_found(what: str, tmp_path: Path) -> None:
    rule, source, _ = MECHANISMS[what]

    assert rule in rules_in(tmp_path, source)


@for_each("what", MECHANISMS)
def test_the_mended_program_is_quiet(what: str, tmp_path: Path) -> None:
    _, _, mended = MECHANISMS[what]

    assert rules_in(tmp_path, mended) == set()


def test_the_pair_of_barriers_around_the_first_rank_is_left_alone_until_only_some_ranks_call_it(tmp_path: Path) -> None:
    pair = """
        def load(rank):
            if rank != 0:
                dist.barrier()
            data = open("cache")
            if rank == 0:
                dist.barrier()
            return data

        def main(rank):
            load(rank)
    """

    assert rules_in(tmp_path, pair) == set()
    assert "collective-under-branch" in rules_in(
        tmp_path, pair.replace("            load(rank)", "            if rank == 0:\n                load(rank)")
    )
