"""Collectives that the source does not show where they happen, and decisions that differ without saying so."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair

ONE_PATH = """
        def train(loader, model):
            for batch in loader:
                try:
                    loss = model(batch)
                    loss.backward()
                except RuntimeError as error:
                    if "out of memory" in str(error):
                        {end}
                    else:
                        raise
"""
LEAVES = """
        def train(loader, model, read):
            for name in loader:
                try:
                    batch = read(name)
                except OSError:
                    {end}
                model(batch).backward()
"""
DECORATED = """
        class Saver:
            {decorator}
            def on_epoch_end(self, trainer):
                trainer.save_checkpoint("last.pt")
"""
CONTEXT = """
        class Timed:
            def __enter__(self):
                {enter}
            def __exit__(self, *error):
                pass

        def step(rank, work):
            if rank == 0:
                with Timed():
                    work()
"""
WRAPPED = """
        def in_step(function):
            def around(*given):
                {before}
                return function(*given)
            return around

        @in_step
        def save(path):
            open(path, "w").close()

        def main(rank):
            if rank == 0:
                save("x")
"""
METRIC = """
        from torchmetrics import {base}

        class Accuracy({base}):
            def compute(self):
                return self.right / self.all

        def report(rank, accuracy: Accuracy):
            if rank == 0:
                print(accuracy.compute())
"""
SHARDED = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def save(net, rank):
            model = {wrap}(net)
            if rank == 0:
                torch.save(model.state_dict(), "x")
"""
CHECKPOINT = """
        import torch.distributed.checkpoint as dcp

        def save(state, rank):
            if rank == 0:
                {save}
"""
COLLECTED = """
        class Buffer:
            def __init__(self):
                self.kept = []

            def add(self, sample):
                {condition}
                    self.kept.append(sample)

            def flush(self, x):
                if len(self.kept) == 0:
                    return
                dist.all_reduce(x)
"""
STORED = """
        class Table:
            def __init__(self):
                self.seen = {{}}

            def add(self, sample):
                {condition}
                    self.seen["bad"] = sample

            def flush(self, x):
                if self.seen.get("bad") is None:
                    return
                dist.all_reduce(x)
"""
DECLARED = """
        class Writer:
            def save(self, x):
                {body}

        class Trainer:
            writer: Writer

            def step(self, x, rank):
                if rank == 0:
                    self.writer.save(x)
"""
PROTOCOL = """
        class FileCheckpointer:
            def save(self, x):
                dist.barrier()

        class CloudCheckpointer:
            def save(self, x):
                {body}

        def step(trainer, rank):
            if rank == 0:
                trainer.checkpointer.save(1)
"""
PREPARED = """
        def main(accelerator, model, optimizer, loader):
            model, optimizer = accelerator.prepare(model, optimizer)
            for batch in loader:
                if accelerator.is_main_process:
                    {call}
"""
CALLBACK = """
        def on_first(function, rank):
            if rank == 0:
                function()

        def sync():
            {body}

        def main(rank):
            on_first(sync, rank)
"""

EMPTY = """
        def gather_kept(entropies, out):
            if entropies.{asked}:
                return None
            dist.all_reduce(out)

        def step(model, out, config):
            gather_kept({passed}, out)
"""
ANY = """
        def step(mask, out):
            {share}
            if not mask.any():
                return
            dist.all_reduce(out)
"""
TRACKER = """
        _TRACKER = {start}

        def get_tracker():
            return _TRACKER

        def reduce_all():
            tracker = get_tracker()
            for name in tracker:
                dist.all_reduce(tracker[name])
"""
REFUSED = """
        import os

        def save(path, rank):
            if {test}:
                raise FileExistsError(path)
            dist.barrier()
"""

PAIRS = {
    "an early return where this rank has nothing": Pair(
        "exit-before-collective",
        EMPTY.format(asked="numel() == 0", passed="model.entropies()"),
        EMPTY.format(asked="numel() == 0", passed="torch.ones(4)"),
    ),
    "a mask that selects nothing on this rank": Pair(
        "exit-before-collective", ANY.format(share="pass"), ANY.format(share="dist.all_reduce(mask)")
    ),
    "a collective per key of a table that the module fills": Pair(
        "collective-per-key", TRACKER.format(start="{}"), TRACKER.format(start="('loss', 'accuracy')")
    ),
    "a check in one condition with the rank": Pair(
        "raise-on-some-ranks",
        REFUSED.format(test="rank == 0 and os.path.exists(path)"),
        REFUSED.format(test="not path"),
    ),
    "an exception that is raised again on one path only": Pair(
        "exception-swallowed", ONE_PATH.format(end="continue"), ONE_PATH.format(end="raise MemoryError from error")
    ),
    "a handler that leaves before the backward pass": Pair(
        "exception-swallowed", LEAVES.format(end="continue"), LEAVES.format(end="raise")
    ),
    "a callback that its decorator runs on one rank": Pair(
        "collective-under-branch", DECORATED.format(decorator="@rank_zero_only"), DECORATED.format(decorator="@timed")
    ),
    "a context manager that waits when it is entered": Pair(
        "call-under-branch", CONTEXT.format(enter="dist.barrier()"), CONTEXT.format(enter="pass")
    ),
    "a decorator that waits before it calls": Pair(
        "call-under-branch", WRAPPED.format(before="dist.barrier()"), WRAPPED.format(before="pass")
    ),
    "a metric with its own computation": Pair(
        "collective-under-branch", METRIC.format(base="Metric"), METRIC.format(base="Table")
    ),
    "the state of a sharded model": Pair(
        "collective-under-branch", SHARDED.format(wrap="FSDP"), SHARDED.format(wrap="torch.nn.Sequential")
    ),
    "a distributed checkpoint on one rank": Pair(
        "collective-under-branch",
        CHECKPOINT.format(save="dcp.save(state)"),
        CHECKPOINT.format(save="torch.save(state)"),
    ),
    "a list that holds what this rank happened to keep": Pair(
        "exit-before-collective",
        COLLECTED.format(condition="if torch.isnan(sample):"),
        COLLECTED.format(condition="if self.enabled:"),
    ),
    "a key that this rank happened to store": Pair(
        "exit-before-collective",
        STORED.format(condition="if torch.isnan(sample):"),
        STORED.format(condition="if self.enabled:"),
    ),
    "a member that the class declares": Pair(
        "call-under-branch", DECLARED.format(body="dist.all_reduce(x)"), DECLARED.format(body="pass")
    ),
    "a method of an unknown object that all classes of that name have": Pair(
        "call-under-branch", PROTOCOL.format(body="dist.all_reduce(x)"), PROTOCOL.format(body="pass")
    ),
    "a model that a library has wrapped": Pair(
        "collective-under-branch",
        PREPARED.format(call="model(batch)"),
        PREPARED.format(call="accelerator.unwrap_model(model)(batch)"),
    ),
    "a function that is passed to the one that calls it": Pair(
        "call-under-branch", CALLBACK.format(body="dist.barrier()"), CALLBACK.format(body="pass")
    ),
}


@for_each("what", PAIRS)
def test_it_is_found_and_its_harmless_twin_is_not(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)
