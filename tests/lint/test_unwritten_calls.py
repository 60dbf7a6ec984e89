"""Collectives behind properties, threads, libraries and functions that are passed around."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair

PAIRS = {
    "the module of a library for communication": Pair(
        "collective-under-branch",
        """
            from detectron2.utils import comm
            def f():
                if comm.is_main_process():
                    comm.synchronize()
        """,
        """
            from detectron2.utils import comm
            def f():
                comm.synchronize()
                if comm.is_main_process():
                    print(1)
        """,
    ),
    "another library's broadcast": Pair(
        "collective-under-branch",
        """
            import horovod.torch as hvd
            def f(x):
                if hvd.rank() == 0:
                    hvd.broadcast(x, 0)
        """,
        """
            import horovod.torch as hvd
            def f(x):
                hvd.broadcast(x, 0)
                if hvd.rank() == 0:
                    print(1)
        """,
    ),
    "text from a sharded model": Pair(
        "collective-under-branch",
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def f(net, x, rank):
                model = FSDP(net)
                if rank == 0:
                    model.generate(x)
        """,
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def f(net, x, rank):
                model = FSDP(net)
                y = model.generate(x)
                if rank == 0:
                    print(y)
        """,
    ),
    "an object that is entered where it was kept": Pair(
        "call-under-branch",
        """
            class Sync:
                def __enter__(self):
                    return self
                def __exit__(self, *a):
                    dist.barrier()
            class T:
                def __init__(self):
                    self.sync = Sync()
                def save(self, rank):
                    if rank == 0:
                        with self.sync:
                            pass
        """,
        """
            class Sync:
                def __enter__(self):
                    return self
                def __exit__(self, *a):
                    dist.barrier()
            class T:
                def __init__(self):
                    self.sync = Sync()
                def save(self, rank):
                    with self.sync:
                        if rank == 0:
                            print(1)
        """,
    ),
    "a property that reduces when it is read": Pair(
        "call-under-branch",
        """
            class Meter:
                @property
                def avg(self):
                    t = torch.tensor(self.total)
                    dist.all_reduce(t)
                    return t
            def log(meter: Meter, rank):
                if rank == 0:
                    print(meter.avg)
        """,
        """
            class Meter:
                @property
                def avg(self):
                    t = torch.tensor(self.total)
                    dist.all_reduce(t)
                    return t
            def log(meter: Meter, rank):
                avg = meter.avg
                if rank == 0:
                    print(avg)
        """,
    ),
    "a property of an object whose class is not known": Pair(
        "call-under-branch",
        """
            class Meter:
                @property
                def global_avg(self):
                    t = torch.tensor(self.total)
                    dist.all_reduce(t)
                    return t
            def log(meters, rank):
                if rank == 0:
                    for name, meter in meters.items():
                        print(meter.global_avg)
        """,
        """
            class Meter:
                @property
                def global_avg(self):
                    return self.total
            def log(meters, rank):
                if rank == 0:
                    for name, meter in meters.items():
                        print(meter.global_avg)
        """,
    ),
    "a helper behind a decorator that keeps one rank": Pair(
        "call-under-branch",
        """
            def save_all(path):
                dist.barrier()
            class Cb:
                @rank_zero_only
                def on_save(self, path):
                    save_all(path)
        """,
        """
            def save_all(path):
                dist.barrier()
            class Cb:
                def on_save(self, path):
                    save_all(path)
        """,
    ),
    "a function that a thread runs": Pair(
        "call-under-branch",
        """
            import threading
            def upload(x):
                dist.all_reduce(x)
            def step(x, rank):
                if rank == 0:
                    t = threading.Thread(target=upload, args=(x,))
                    t.start()
        """,
        """
            import threading
            def upload(x):
                dist.all_reduce(x)
            def step(x, rank):
                t = threading.Thread(target=upload, args=(x,))
                t.start()
        """,
    ),
    "a method that a thread runs": Pair(
        "call-under-branch",
        """
            from threading import Thread
            class S:
                def _work(self):
                    dist.barrier()
                def start(self, rank):
                    if rank == 0:
                        Thread(target=self._work, daemon=True).start()
        """,
        """
            from threading import Thread
            class S:
                def _work(self):
                    print(1)
                def start(self, rank):
                    if rank == 0:
                        Thread(target=self._work, daemon=True).start()
        """,
    ),
    "a method that an executor runs": Pair(
        "call-under-branch",
        """
            from concurrent.futures import ThreadPoolExecutor
            class S:
                def _work(self):
                    dist.barrier()
                def start(self, rank):
                    if rank == 0:
                        self.pool.submit(self._work)
        """,
        """
            from concurrent.futures import ThreadPoolExecutor
            class S:
                def _work(self):
                    dist.barrier()
                def start(self, rank):
                    self.pool.submit(self._work)
        """,
    ),
    "an object that came through a constructor": Pair(
        "call-under-branch",
        """
            class Comm:
                def share(self, x):
                    dist.all_reduce(x)
            class Logger:
                def __init__(self, comm):
                    self.c = comm
                def log(self, x, rank):
                    if rank == 0:
                        self.c.share(x)
            def main():
                Logger(Comm())
        """,
        """
            class Comm:
                def share(self, x):
                    pass
            class Logger:
                def __init__(self, comm):
                    self.c = comm
                def log(self, x, rank):
                    if rank == 0:
                        self.c.share(x)
            def main():
                Logger(Comm())
        """,
    ),
    "the state of a model inside its context for state": Pair(
        "collective-under-branch",
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
            def save(model, rank):
                with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                    if rank == 0:
                        torch.save(model.state_dict(), "x")
        """,
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
            def save(model, rank):
                with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                    sd = model.state_dict()
                if rank == 0:
                    torch.save(sd, "x")
        """,
    ),
    "the state of a model that was asked whether it is sharded": Pair(
        "collective-under-branch",
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def save(model, rank):
                if rank == 0:
                    if isinstance(model, FSDP):
                        torch.save(model.state_dict(), "x")
        """,
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def save(model, rank):
                if isinstance(model, FSDP):
                    sd = model.state_dict()
                else:
                    sd = model.state_dict()
                if rank == 0:
                    torch.save(sd, "x")
        """,
    ),
    "clipping the gradients of a sharded model": Pair(
        "collective-under-branch",
        """
            from torch.distributed.fsdp import fully_shard
            def train(model, loader):
                fully_shard(model)
                for batch in loader:
                    loss = model(batch)
                    if torch.isfinite(loss):
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
        """
            def train(model, loader):
                for batch in loader:
                    loss = model(batch)
                    if torch.isfinite(loss):
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
    ),
    "an optimizer that collects its state": Pair(
        "collective-under-branch",
        """
            from torch.distributed.optim import ZeroRedundancyOptimizer
            def save(opt, rank):
                if rank == 0:
                    opt.consolidate_state_dict(to=0)
                    torch.save(opt.state_dict(), "x")
        """,
        """
            from torch.distributed.optim import ZeroRedundancyOptimizer
            def save(opt, rank):
                opt.consolidate_state_dict(to=0)
                if rank == 0:
                    torch.save(opt.state_dict(), "x")
        """,
    ),
    "the state of an optimizer of a sharded model": Pair(
        "collective-under-branch",
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def save(model, opt, rank):
                if rank == 0:
                    sd = FSDP.optim_state_dict(model, opt)
                    torch.save(sd, "x")
        """,
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def save(model, opt, rank):
                sd = FSDP.optim_state_dict(model, opt)
                if rank == 0:
                    torch.save(sd, "x")
        """,
    ),
    "parameters that are gathered for a while": Pair(
        "collective-under-branch",
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def gen(model, rank, x):
                if rank == 0:
                    with FSDP.summon_full_params(model):
                        model.generate(x)
        """,
        """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            def gen(model, rank, x):
                with FSDP.summon_full_params(model):
                    if rank == 0:
                        print(x)
        """,
    ),
    "a library object under a name of its own": Pair(
        "collective-under-branch",
        """
            from accelerate import Accelerator
            def main(model):
                acc = Accelerator()
                if acc.is_main_process:
                    acc.save_state("x")
        """,
        """
            from accelerate import Accelerator
            def main(model):
                acc = Accelerator()
                acc.save_state("x")
        """,
    ),
    "an engine under a name of its own": Pair(
        "collective-under-branch",
        """
            import deepspeed
            def main(net, rank, path):
                net, opt, _, _ = deepspeed.initialize(model=net)
                if rank == 0:
                    net.save_checkpoint(path)
        """,
        """
            import deepspeed
            def main(net, rank, path):
                net, opt, _, _ = deepspeed.initialize(model=net)
                net.save_checkpoint(path)
        """,
    ),
    "a log line that is averaged over ranks": Pair(
        "collective-under-branch",
        """
            import pytorch_lightning as pl
            class M(pl.LightningModule):
                def training_step(self, batch, i):
                    if self.trainer.is_global_zero:
                        self.log("x", 1.0, sync_dist=True)
        """,
        """
            import pytorch_lightning as pl
            class M(pl.LightningModule):
                def training_step(self, batch, i):
                    if self.trainer.is_global_zero:
                        self.log("x", 1.0, rank_zero_only=True)
        """,
    ),
    "a library trainer's evaluation": Pair(
        "collective-under-branch",
        """
            from transformers import Trainer
            def main(model, args):
                trainer = Trainer(model=model, args=args)
                if trainer.is_world_process_zero():
                    trainer.evaluate()
        """,
        """
            from transformers import Trainer
            def main(model, args):
                trainer = Trainer(model=model, args=args)
                metrics = trainer.evaluate()
                if trainer.is_world_process_zero():
                    print(metrics)
        """,
    ),
    "a metric of a library": Pair(
        "collective-under-branch",
        """
            import torchmetrics
            class M:
                def __init__(self):
                    self.acc = torchmetrics.Accuracy()
                def end(self, rank):
                    if rank == 0:
                        v = self.acc.compute()
        """,
        """
            import torchmetrics
            class M:
                def __init__(self):
                    self.acc = torchmetrics.Accuracy()
                def end(self, rank):
                    v = self.acc.compute()
                    if rank == 0:
                        print(v)
        """,
    ),
    "hooks of which all that do something communicate": Pair(
        "call-under-branch",
        """
            class Hook:
                def after_train_iter(self, runner): ...
            class EvalHook(Hook):
                def after_train_iter(self, runner):
                    dist.barrier()
            class Runner:
                def call(self, rank):
                    if rank == 0:
                        for hook in self.hooks:
                            hook.after_train_iter(self)
        """,
        """
            class Hook:
                def after_train_iter(self, runner): ...
            class EvalHook(Hook):
                def after_train_iter(self, runner):
                    print(1)
            class Runner:
                def call(self, rank):
                    if rank == 0:
                        for hook in self.hooks:
                            hook.after_train_iter(self)
        """,
    ),
    "a lambda that is passed to the one that calls it": Pair(
        "collective-under-branch",
        """
            def on_main(fn, rank):
                if rank == 0:
                    fn()
            def main(x, rank):
                on_main(lambda: dist.all_reduce(x), rank)
        """,
        """
            def on_main(fn, rank):
                if rank == 0:
                    fn()
            def main(x, rank):
                on_main(lambda: print(x), rank)
        """,
    ),
    "a generator that waits in each round": Pair(
        "call-under-branch",
        """
            def batches(loader):
                for b in loader:
                    dist.barrier()
                    yield b
            def main(loader, rank):
                if rank == 0:
                    for b in batches(loader):
                        pass
        """,
        """
            def batches(loader):
                for b in loader:
                    yield b
            def main(loader, rank):
                if rank == 0:
                    for b in batches(loader):
                        pass
        """,
    ),
    "a call after `and`": Pair(
        "call-under-branch",
        """
            def f(x, rank, helper):
                ok = rank == 0 and sync(x)
            def sync(x):
                dist.all_reduce(x)
                return True
        """,
        """
            def f(x, args, helper):
                ok = args.flag and sync(x)
            def sync(x):
                dist.all_reduce(x)
                return True
        """,
    ),
    "a condition whose second half communicates": Pair(
        "call-under-branch",
        """
            def check(x):
                dist.all_reduce(x)
                return x.item() > 0
            def f(x, loss):
                if torch.isnan(loss) or check(x):
                    return
        """,
        """
            def check(x):
                dist.all_reduce(x)
                return x.item() > 0
            def f(x, args):
                if args.skip or check(x):
                    return
        """,
    ),
    "a comprehension over what this rank has seen": Pair(
        "collective-per-key",
        """
            def reduce_all(metrics):
                return {k: reduce(v) for k, v in metrics.items()}
            def reduce(v):
                dist.all_reduce(v)
                return v
            class L:
                def __init__(self):
                    self.metrics = {}
                def add(self, batch):
                    self.metrics[batch["task"]] = 1
                def flush(self):
                    return {k: reduce(v) for k, v in self.metrics.items()}
        """,
        """
            def reduce(v):
                dist.all_reduce(v)
                return v
            class L:
                def __init__(self):
                    self.metrics = {"loss": 0, "acc": 0}
                def flush(self):
                    return {k: reduce(v) for k, v in self.metrics.items()}
        """,
    ),
    "a table of functions that all communicate": Pair(
        "call-under-branch",
        """
            def save_full(x):
                dist.barrier()
            def save_lora(x):
                dist.barrier()
            SAVERS = {"full": save_full, "lora": save_lora}
            def f(x, rank, kind):
                if rank == 0:
                    SAVERS[kind](x)
        """,
        """
            def save_full(x):
                dist.barrier()
            def save_lora(x):
                pass
            SAVERS = {"full": save_full, "lora": save_lora}
            def f(x, rank, kind):
                if rank == 0:
                    SAVERS[kind](x)
        """,
    ),
    "one of two functions that both communicate": Pair(
        "call-under-branch",
        """
            def a(x): dist.barrier()
            def b(x): dist.all_reduce(x)
            def f(x, rank, flag):
                save = a if flag else b
                if rank == 0:
                    save(x)
        """,
        """
            def a(x): pass
            def b(x): dist.all_reduce(x)
            def f(x, rank, flag):
                save = a if flag else b
                if rank == 0:
                    save(x)
        """,
    ),
    "a method that the base class has": Pair(
        "call-under-branch",
        """
            class Base:
                def save(self, x):
                    dist.barrier()
            class Sub(Base):
                def save(self, x):
                    if dist.get_rank() == 0:
                        super().save(x)
        """,
        """
            class Base:
                def save(self, x):
                    dist.barrier()
            class Sub(Base):
                def save(self, x):
                    super().save(x)
        """,
    ),
    "a coroutine": Pair(
        "call-under-branch",
        """
            import asyncio
            async def sync(x):
                dist.all_reduce(x)
            async def f(x, rank):
                if rank == 0:
                    await sync(x)
        """,
        """
            import asyncio
            async def sync(x):
                dist.all_reduce(x)
            async def f(x, rank):
                await sync(x)
        """,
    ),
}


@for_each("what", PAIRS)
def test_it_is_found_and_its_harmless_twin_is_not(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)
