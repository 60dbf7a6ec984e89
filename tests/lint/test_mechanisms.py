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
    "a dictionary that batches without tokens leave empty": (
        "exit-before-collective",
        """
        from collections import defaultdict

        def step(batches):
            metrics = defaultdict(list)
            for batch in batches:
                if batch["loss_mask"].sum().item() == 0:
                    continue
                for name, value in batch["metrics"].items():
                    metrics[name].append(value)
            if not metrics:
                return
            dist.all_reduce(torch.ones(1))
        """,
        """
        from collections import defaultdict

        def step(batches, names):
            metrics = defaultdict(list)
            for batch in batches:
                for name in names:
                    metrics[name].append(batch[name])
            if not metrics:
                return
            dist.all_reduce(torch.ones(1))
        """,
    ),
    "a list whose length another function passes on": (
        "collective-under-branch",
        """
        def largest(values):
            found = {}
            for name, value in values.items():
                found[name] = max(value)
            return found

        def share(values):
            if len(values) > 0:
                dist.all_reduce(torch.ones(1))

        def step(batches):
            values = {}
            for batch in batches:
                if batch["loss_mask"].sum().item() == 0:
                    continue
                values[batch["name"]] = batch["loss"]
            share(largest(values))
        """,
        """
        def largest(values):
            found = {}
            for name, value in values.items():
                found[name] = max(value)
            return found

        def share(values):
            if len(values) > 0:
                dist.all_reduce(torch.ones(1))

        def step(config):
            values = {}
            for name in config.names:
                values[name] = config.losses[name]
            share(largest(values))
        """,
    ),
    "a loop over what a mask found": (
        "loop-count-differs",
        """
        def reduce_found(x, mask):
            found = torch.nonzero(mask)
            for place in range(0, len(found), 8):
                dist.all_reduce(x[place])
        """,
        """
        def reduce_found(x, mask):
            found = torch.nonzero(mask)
            most = torch.tensor(len(found))
            dist.all_reduce(most, op=dist.ReduceOp.MAX)
            for place in range(0, int(most), 8):
                dist.all_reduce(x[place])
        """,
    ),
    "a callback that is registered on one rank": (
        "call-under-branch",
        """
        class Callback:
            def on_end(self): ...

        class Saver(Callback):
            def on_end(self):
                dist.barrier()

        def callbacks(rank):
            found = []
            if rank == 0:
                found.append(Saver())
            return found
        """,
        """
        class Callback:
            def on_end(self): ...

        class Saver(Callback):
            def on_end(self):
                dist.barrier()

        class Printer(Callback):
            def on_end(self):
                print("done")

        def callbacks(rank):
            found = [Saver()]
            if rank == 0:
                found.append(Printer())
            return found
        """,
    ),
    "an object as bytes": (
        "shape-differs",
        """
        import pickle

        def gather(data, out):
            tensor = torch.ByteTensor(torch.ByteStorage.from_buffer(pickle.dumps(data))).to("cuda")
            dist.all_gather(out, tensor)
        """,
        """
        import pickle

        def gather(data, out, sizes):
            tensor = torch.ByteTensor(torch.ByteStorage.from_buffer(pickle.dumps(data))).to("cuda")
            dist.all_gather(sizes, torch.tensor([tensor.numel()]))
            padding = torch.empty(max(sizes) - tensor.numel())
            tensor = torch.cat((tensor, padding))
            dist.all_gather(out, tensor)
        """,
    ),
    "a rendezvous on the first ordinal": (
        "collective-under-branch",
        """
        import torch_xla.core.xla_model as xm

        def save():
            if xm.is_master_ordinal():
                xm.rendezvous("saved")
        """,
        """
        import torch_xla.core.xla_model as xm

        def save():
            if xm.is_master_ordinal():
                print("saved")
            xm.rendezvous("saved")
        """,
    ),
    "the model in its wrapper": (
        "collective-under-branch",
        """
        def main(net, rank, batch):
            model = DDP(net)
            chosen = model if dist.is_initialized() else net
            if rank == 0:
                chosen(batch)
        """,
        """
        def main(net, rank, batch):
            model = DDP(net)
            chosen = model.module if dist.is_initialized() else model
            if rank == 0:
                chosen(batch)
        """,
    ),
    "followers without a leader that sends": (
        "call-under-branch",
        """
        class Server:
            def follow(self):
                while True:
                    dist.broadcast(torch.ones(1), 0)

            def run(self, server, rank):
                if rank == 0:
                    server.bind("infer")
                else:
                    self.follow()
        """,
        """
        class Server:
            def infer(self, x):
                dist.broadcast(x, 0)

            def follow(self):
                while True:
                    dist.broadcast(torch.ones(1), 0)

            def run(self, server, rank):
                if rank == 0:
                    server.bind("infer", self.infer)
                else:
                    self.follow()
        """,
    ),
    "a number that a file has": (
        "collective-under-branch",
        """
        def step_of(path):
            try:
                step = int(open(path).read())
            except OSError:
                step = 0
            return step

        def resume(path):
            if step_of(path) > 0:
                dist.barrier()
        """,
        """
        import re

        def step_of(path):
            try:
                step = int(re.findall("step=([0-9]+)", path)[0])
            except (ValueError, IndexError):
                step = 0
            return step

        def resume(path):
            if step_of(path) > 0:
                dist.barrier()
        """,
    ),
    "a file beside which one rank makes a folder": (
        "exit-before-collective",
        """
        def build(cache, is_main_process, table):
            if cache.exists():
                return
            if is_main_process:
                table.save(cache)
            dist.barrier()
        """,
        """
        def build(cache, is_main_process, table):
            if cache.exists():
                return
            if is_main_process:
                cache.parent.mkdir(parents=True)
            dist.barrier()
        """,
    ),
    "a clock": (
        "collective-under-branch",
        """
        def main(trainer, args, start):
            late = time.time() - start > args.limit
            if late:
                dist.barrier()
        """,
        """
        def main(trainer, args, start):
            args.folder = f"{args.name}-{time.time()}"
            resumed = trainer.resume(args.folder)
            if resumed:
                dist.barrier()
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


def test_one_doubtful_value_that_decides_several_branches_is_one_finding(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        HEAD
        + textwrap.dedent("""
        def resume(path):
            try:
                text = open(path).read()
            except OSError:
                text = ""
            if text:
                dist.barrier()
            print("between")
            if not text:
                dist.all_reduce(torch.ones(1))
    """),
    )

    assert [v.rule for v in lint(program, Options()).violations] == ["collective-under-branch"]


def test_a_rank_that_decides_several_branches_is_a_finding_at_each(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        HEAD
        + textwrap.dedent("""
        def save(rank):
            is_main = rank == 0
            if is_main:
                dist.barrier()
            print("between")
            if is_main:
                dist.all_reduce(torch.ones(1))
    """),
    )

    assert len(lint(program, Options()).violations) == 2


def test_the_reason_is_that_of_the_strongest_branch_around_a_call(tmp_path: Path) -> None:
    program = program_of(
        tmp_path,
        HEAD
        + textwrap.dedent("""
        def push(path, rank):
            try:
                allowed = open(path).read()
            except OSError:
                allowed = ""
            if rank == 0:
                if allowed:
                    dist.barrier()
    """),
    )

    assert [v.condition for v in lint(program, Options()).violations] == ["rank == 0"]


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
