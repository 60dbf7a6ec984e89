"""Decisions on what one rank alone knows, and their near misses that are the same everywhere."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair

PAIRS = {
    "a cache that one rank makes while another one looks": Pair(
        "collective-under-branch",
        """
            import os
            def prepare(cache, rank):
                if not os.path.exists(cache):
                    if rank == 0:
                        build(cache)
                    dist.barrier()
            def build(p): pass
        """,
        """
            import os
            def prepare(cache, rank):
                if rank == 0 and not os.path.exists(cache):
                    build(cache)
                dist.barrier()
            def build(p): pass
        """,
    ),
    "what a mask selects": Pair(
        "shape-differs",
        """
            def f(out, values, labels):
                kept = values[labels > 0]
                dist.all_gather(out, kept)
        """,
        """
            def f(out, values, labels):
                kept = values * (labels > 0)
                dist.all_gather(out, kept)
        """,
    ),
    "what is not zero": Pair(
        "shape-differs",
        """
            def f(out, labels):
                idx = torch.nonzero(labels)
                dist.all_gather(out, idx)
        """,
        """
            def f(labels):
                idx = torch.nonzero(labels)
                out = [None] * 4
                dist.all_gather_object(out, idx)
        """,
    ),
    "keys that another table lacks": Pair(
        "order-differs",
        """
            def f(a, b):
                for k in a.keys() - b.keys():
                    dist.broadcast(a[k], 0)
        """,
        """
            def f(a, b):
                for k in sorted(a.keys() - b.keys()):
                    dist.broadcast(a[k], 0)
        """,
    ),
    "one rank after the other": Pair(
        "collective-under-branch",
        """
            def f(x, rank):
                for r in range(dist.get_world_size()):
                    if r == rank:
                        print(x)
                        dist.barrier()
        """,
        """
            def f(x, rank):
                for r in range(dist.get_world_size()):
                    if r == rank:
                        print(x)
                    dist.barrier()
        """,
    ),
    "a stop that a decorator keeps on one rank": Pair(
        "stop-flag-differs",
        """
            class Limit:
                @rank_zero_only
                def check(self, trainer):
                    if self.asked:
                        trainer.should_stop = True
        """,
        """
            class Limit:
                def check(self, trainer):
                    if self.asked:
                        trainer.should_stop = True
        """,
    ),
    "one rank, and within that a weaker reason": Pair(
        "collective-under-branch",
        """
            def main(accelerator, steps, train_dataloader, args):
                for step in range(steps):
                    if accelerator.is_main_process:
                        if len(train_dataloader) > 5:
                            accelerator.save_state("x")
        """,
        """
            def main(accelerator, steps, args):
                for step in range(steps):
                    if args.saves:
                        if step % 5 == 0:
                            accelerator.save_state("x")
        """,
    ),
    "a sorted order with ties": Pair(
        "order-differs",
        """
            def f(values):
                names = {v.name for v in values}
                for n in sorted(names, key=lambda n: 0 if "norm" in n else 1):
                    dist.all_reduce(values[n])
        """,
        """
            def f(values):
                names = {v.name for v in values}
                for n in sorted(names, key=lambda n: (len(n), n)):
                    dist.all_reduce(values[n])
        """,
    ),
    "parameters of which a rank may hold none": Pair(
        "collective-under-branch",
        """
            def norm(model, group_norm):
                sharded = []
                for param in model.parameters():
                    if param.is_sharded:
                        sharded.append(param)
                if len(sharded) > 0:
                    total = torch.zeros(1)
                    dist.all_reduce(total)
        """,
        """
            def norm(model, group_norm):
                sharded = []
                for param in model.parameters():
                    if param.is_sharded:
                        sharded.append(param)
                total = torch.zeros(1)
                if len(sharded) > 0:
                    total += 1
                dist.all_reduce(total)
        """,
    ),
    "work in flight on this rank": Pair(
        "exit-before-collective",
        """
            class Cache:
                def __init__(self):
                    self.ongoing_writes = {}
                def write(self, node):
                    self.ongoing_writes[node.id] = node
                def check(self, count):
                    if len(self.ongoing_writes) == 0:
                        return
                    dist.all_reduce(count)
        """,
        """
            class Cache:
                def __init__(self):
                    self.ongoing_writes = {}
                def write(self, node):
                    self.ongoing_writes[node.id] = node
                def check(self, count):
                    dist.all_reduce(count)
                    if len(self.ongoing_writes) == 0:
                        return
        """,
    ),
    "a message from the first stage to the last": Pair(
        "message-without-partner",
        """
            def tie(pp_group, x):
                if pp_group.is_first_rank:
                    pp_group.send(x, dst=pp_group.last_rank)
                else:
                    pp_group.recv(x, src=pp_group.first_rank)
        """,
        """
            def tie(pp_group, x):
                if pp_group.is_first_rank:
                    pp_group.send(x, dst=pp_group.last_rank)
                elif pp_group.is_last_rank:
                    pp_group.recv(x, src=pp_group.first_rank)
        """,
    ),
    "places that a mask finds": Pair(
        "call-under-branch",
        """
            def loss(labels, preds):
                pos = torch.where((labels >= 0) & (labels < 80))[0]
                num_pos = len(pos)
                if num_pos > 0:
                    avg = reduce_mean(preds.sum())
            def reduce_mean(t):
                dist.all_reduce(t)
                return t
        """,
        """
            def loss(labels, preds):
                pos = torch.where(labels >= 0, labels, preds)
                avg = reduce_mean(preds.sum())
            def reduce_mean(t):
                dist.all_reduce(t)
                return t
        """,
    ),
    "the process that writes": Pair(
        "collective-under-branch",
        """
            class T:
                def save_model(self, model):
                    if self.args.should_save:
                        self.accelerator.get_state_dict(model)
        """,
        """
            class T:
                def save_model(self, model):
                    if self.control.should_save:
                        self.accelerator.get_state_dict(model)
        """,
    ),
    "nothing waits in the queue of this rank": Pair(
        "exit-before-collective",
        """
            class Worker:
                def __init__(self):
                    self.q = []
                def add(self, request):
                    self.q.append(request)
                def step(self, x):
                    if len(self.q) == 0:
                        return
                    dist.all_reduce(x)
        """,
        """
            class Worker:
                def __init__(self, config):
                    self.q = []
                    for name in config.names:
                        self.q.append(name)
                def step(self, x):
                    if len(self.q) == 0:
                        return
                    dist.all_reduce(x)
        """,
    ),
    "no requests have reached this rank": Pair(
        "exit-before-collective",
        """
            class Engine:
                def __init__(self):
                    self.requests = {}
                def add_request(self, r):
                    self.requests[r.id] = r
                def has_work(self):
                    return len(self.requests) > 0
                def step(self, x):
                    if not self.has_work():
                        return
                    dist.all_reduce(x)
        """,
        """
            class Engine:
                def __init__(self, models):
                    self.models = {}
                    for m in models:
                        self.models[m.id] = m
                def has_work(self):
                    return len(self.models) > 0
                def step(self, x):
                    if not self.has_work():
                        return
                    dist.all_reduce(x)
        """,
    ),
    "this rank has kept no results": Pair(
        "exit-before-collective",
        """
            def evaluate(loader, model):
                results = []
                for batch in loader:
                    out = model(batch)
                    keep = out[out > 0.5]
                    if keep.numel() > 0:
                        results.append(keep)
                if not results:
                    return {}
                merged = torch.cat(results)
                out = [None] * dist.get_world_size()
                dist.all_gather_object(out, merged)
                return out
        """,
        """
            def evaluate(loader, model):
                results = []
                for batch in loader:
                    out = model(batch)
                    keep = out[out > 0.5]
                    if keep.numel() > 0:
                        results.append(keep)
                out = [None] * dist.get_world_size()
                dist.all_gather_object(out, results)
                if not out:
                    return {}
                return out
        """,
    ),
    "no positive samples on this rank": Pair(
        "exit-before-collective",
        """
            def loss(self, labels, preds):
                pos = (labels > 0).nonzero().squeeze(1)
                if len(pos) == 0:
                    return preds.sum() * 0
                n = torch.tensor(len(pos))
                dist.all_reduce(n)
                return preds[pos].sum() / n
        """,
        """
            def loss(self, labels, preds):
                pos = (labels > 0).nonzero().squeeze(1)
                n = torch.tensor(len(pos))
                dist.all_reduce(n)
                if n == 0:
                    return preds.sum() * 0
                return preds[pos].sum() / n
        """,
    ),
    "a count of this rank's labels": Pair(
        "call-under-branch",
        """
            def loss(self, labels, preds):
                mask = labels > 0
                num = mask.sum()
                if num > 0:
                    avg = reduce_mean(num)
                return preds
            def reduce_mean(t):
                dist.all_reduce(t)
                return t
        """,
        """
            def loss(self, labels, preds):
                mask = labels > 0
                num = reduce_mean(mask.sum())
                if num > 0:
                    return preds / num
                return preds
            def reduce_mean(t):
                dist.all_reduce(t)
                return t
        """,
    ),
    "no index over the threshold": Pair(
        "exit-before-collective",
        """
            def step(self, scores, x):
                idx = torch.where(scores > 0.5)[0]
                if idx.numel() == 0:
                    return None
                dist.all_reduce(x)
        """,
        """
            def step(self, scores, x):
                idx = torch.where(scores > 0.5)[0]
                dist.all_reduce(x)
                if idx.numel() == 0:
                    return None
        """,
    ),
    "a batch without boxes": Pair(
        "exit-before-collective",
        """
            def train(loader, model):
                for batch in loader:
                    if len(batch["boxes"]) == 0:
                        continue
                    model(batch).backward()
        """,
        """
            def train(loader, model):
                for batch in loader:
                    model(batch).backward()
        """,
    ),
    "a batch that was left out": Pair(
        "exit-before-collective",
        """
            def train(loader, model):
                for batch in loader:
                    if batch is None:
                        continue
                    model(batch).backward()
        """,
        """
            def train(loader, model):
                for batch in loader:
                    model(batch).backward()
        """,
    ),
    "no files for this rank": Pair(
        "exit-before-collective",
        """
            def run(dataset, rank, world, model):
                shard = dataset[rank::world]
                if len(shard) == 0:
                    return []
                out = [model(x) for x in shard]
                res = [None] * world
                dist.all_gather_object(res, out)
                return res
        """,
        """
            def run(dataset, rank, world, model):
                shard = dataset[rank::world]
                out = [model(x) for x in shard]
                res = [None] * world
                dist.all_gather_object(res, out)
                return res
        """,
    ),
    "a round for each of this rank's files": Pair(
        "loop-count-differs",
        """
            def run(files, rank, world):
                for f in files[rank::world]:
                    print(f)
                    dist.barrier()
        """,
        """
            def run(files, rank, world):
                for f in files[rank::world]:
                    print(f)
                dist.barrier()
        """,
    ),
    "every n-th item from the rank on": Pair(
        "loop-count-differs",
        """
            def run(items, rank, world):
                for i in range(rank, len(items), world):
                    dist.barrier()
        """,
        """
            def run(items, rank, world):
                for i in range(rank, len(items), world):
                    print(i)
                dist.barrier()
        """,
    ),
    "a key that only some data brings": Pair(
        "exit-before-collective",
        """
            class M:
                def __init__(self):
                    self.seen = {}
                def update(self, batch):
                    for k in batch["labels"].tolist():
                        self.seen[k] = 1
                def flush(self, x):
                    if self.seen.get(3) is None:
                        return
                    dist.all_reduce(x)
        """,
        """
            class M:
                def __init__(self):
                    self.seen = {}
                def update(self, name, value):
                    self.seen["loss"] = value
                def flush(self, x):
                    if self.seen.get("loss") is None:
                        return
                    dist.all_reduce(x)
        """,
    ),
    "an entry that a check of this rank stored": Pair(
        "exit-before-collective",
        """
            def step(outputs, loss, x):
                found = {}
                if torch.isnan(loss):
                    found["bad"] = True
                if "bad" in found:
                    return
                dist.all_reduce(x)
        """,
        """
            def step(outputs, args, x):
                found = {}
                if args.bad:
                    found["bad"] = True
                if "bad" in found:
                    return
                dist.all_reduce(x)
        """,
    ),
    "a flag that came through a constructor": Pair(
        "collective-under-branch",
        """
            class Saver:
                def __init__(self, should):
                    self.should = should
                def save(self, x):
                    if self.should:
                        dist.all_reduce(x)
            def main(x):
                s = Saver(dist.get_rank() == 0)
                s.save(x)
        """,
        """
            class Saver:
                def __init__(self, should):
                    self.should = should
                def save(self, x):
                    if self.should:
                        dist.all_reduce(x)
            def main(x, args):
                s = Saver(args.save)
                s.save(x)
        """,
    ),
    "a field of a data class": Pair(
        "collective-under-branch",
        """
            from dataclasses import dataclass
            @dataclass
            class Ctx:
                main: bool
            def save(ctx: Ctx, x):
                if ctx.main:
                    dist.barrier()
            def main(x):
                save(Ctx(main=dist.get_rank() == 0), x)
        """,
        """
            from dataclasses import dataclass
            @dataclass
            class Ctx:
                main: bool
            def save(ctx: Ctx, x):
                if ctx.main:
                    dist.barrier()
            def main(x, args):
                save(Ctx(main=args.main), x)
        """,
    ),
    "a flag of the module": Pair(
        "collective-under-branch",
        """
            IS_LEAD = dist.get_rank() == 0
            def main(x):
                if IS_LEAD:
                    dist.all_reduce(x)
        """,
        """
            LEAD = False
            def main(x):
                if LEAD:
                    dist.all_reduce(x)
        """,
    ),
    "an option that each rank sets for itself": Pair(
        "collective-under-branch",
        """
            def main(args, x):
                args.save = dist.get_rank() == 0
                run(args, x)
            def run(args, x):
                if args.save:
                    dist.all_reduce(x)
        """,
        """
            def main(args, x):
                args.save = True
                run(args, x)
            def run(args, x):
                if args.save:
                    dist.all_reduce(x)
        """,
    ),
    "a flag that a signal sets": Pair(
        "exit-before-collective",
        """
            import signal
            class T:
                def __init__(self):
                    self.stop = False
                    signal.signal(signal.SIGTERM, self._on)
                def _on(self, s, f):
                    self.stop = True
                def fit(self, loader, model):
                    for batch in loader:
                        model(batch).backward()
                        if self.stop:
                            break
        """,
        """
            class T:
                def __init__(self):
                    self.stop = False
                def _on(self, s, f):
                    self.stop = True
                def fit(self, loader, model):
                    for batch in loader:
                        model(batch).backward()
                        if self.stop:
                            break
        """,
    ),
    "a file that one rank writes meanwhile": Pair(
        "collective-under-branch",
        """
            import os
            def load(path, rank, x):
                if rank == 0:
                    torch.save(x, path)
                if os.path.exists(path):
                    dist.all_reduce(x)
        """,
        """
            import os
            def load(path, rank, x):
                if rank == 0:
                    torch.save(x, path)
                dist.barrier()
                if os.path.exists(path):
                    dist.all_reduce(x)
        """,
    ),
    "chance with a seed for each rank": Pair(
        "exit-before-collective",
        """
            import random
            def setup(seed):
                random.seed(seed + dist.get_rank())
            def train(loader, model):
                for batch in loader:
                    if random.random() < 0.1:
                        continue
                    model(batch).backward()
        """,
        """
            import random
            def setup(seed):
                random.seed(seed)
            def train(loader, model):
                for batch in loader:
                    if random.random() < 0.1:
                        continue
                    model(batch).backward()
        """,
    ),
    "a message that depends on the sender's data": Pair(
        "message-without-partner",
        """
            def push(x, mask, rank):
                if mask.any():
                    dist.send(x, dst=rank + 1)
                dist.recv(x, src=rank - 1)
        """,
        """
            def push(x, flag, rank):
                if flag:
                    dist.send(x, dst=rank + 1)
                dist.recv(x, src=rank - 1)
        """,
    ),
    "a message through the object of a group": Pair(
        "message-without-partner",
        """
            def exchange(pp_group, x, rank):
                if pp_group.rank() == 0:
                    pp_group.send(x, 1)
                else:
                    pp_group.recv(x, 0)
        """,
        """
            def exchange(pp_group, x, rank):
                if pp_group.rank() == 0:
                    pp_group.send(x, 1)
                elif pp_group.rank() == 1:
                    pp_group.recv(x, 0)
        """,
    ),
    "a check in a helper that one rank calls": Pair(
        "raise-on-some-ranks",
        """
            def check(path):
                import os
                if os.path.exists(path):
                    raise FileExistsError(path)
            def main(path, rank):
                if rank == 0:
                    check(path)
                dist.barrier()
        """,
        """
            def check(path):
                import os
                if os.path.exists(path):
                    raise FileExistsError(path)
            def main(path, rank):
                check(path)
                dist.barrier()
        """,
    ),
    "patience that each rank has for itself": Pair(
        "exit-before-collective",
        """
            class Stopper:
                def __init__(self):
                    self.best = 0
                    self.bad = 0
                def step(self, value):
                    if value > self.best:
                        self.best = value
                        self.bad = 0
                    else:
                        self.bad += 1
                    return self.bad > 3
            def fit(model, loader, stopper: Stopper):
                for batch in loader:
                    loss = model(batch)
                    loss.backward()
                    if stopper.step(loss.item()):
                        break
        """,
        """
            class Stopper:
                def __init__(self):
                    self.best = 0
                    self.bad = 0
                def step(self, value):
                    if value > self.best:
                        self.best = value
                        self.bad = 0
                    else:
                        self.bad += 1
                    return self.bad > 3
            def fit(model, loader, stopper: Stopper):
                for batch in loader:
                    loss = model(batch)
                    loss.backward()
                    total = loss.detach()
                    dist.all_reduce(total)
                    if stopper.step(total.item()):
                        break
        """,
    ),
    "overflow in this rank's gradients": Pair(
        "exit-before-collective",
        """
            class Opt:
                def step(self):
                    overflow = self.has_overflow(self.params)
                    if overflow:
                        return
                    norm = self.norm()
                def has_overflow(self, params):
                    for p in params:
                        if torch.isinf(p.grad).any():
                            return True
                    return False
                def norm(self):
                    t = torch.zeros(1)
                    dist.all_reduce(t)
                    return t
        """,
        """
            class Opt:
                def step(self):
                    overflow = self.has_overflow(self.params)
                    if overflow:
                        return
                    norm = self.norm()
                def has_overflow(self, params):
                    bad = torch.zeros(1)
                    for p in params:
                        if torch.isinf(p.grad).any():
                            bad.fill_(1)
                    dist.all_reduce(bad)
                    return bad.item() > 0
                def norm(self):
                    t = torch.zeros(1)
                    dist.all_reduce(t)
                    return t
        """,
    ),
    "work that has ended on this rank already": Pair(
        "collective-under-branch",
        """
            class S:
                def maybe(self, x):
                    if self._future is not None and self._future.done():
                        self._future = None
                        dist.all_reduce(x)
        """,
        """
            class S:
                def maybe(self, x):
                    if self._future is not None:
                        self._future.result()
                        self._future = None
                        dist.all_reduce(x)
        """,
    ),
}


@for_each("what", PAIRS)
def test_it_is_found_and_its_harmless_twin_is_not(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)
