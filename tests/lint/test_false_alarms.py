"""What looks like a hazard and is none, each beside the hazard that it looks like."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair

SWALLOWED = """
        def refuse(error) -> None:
            print(error)
            {end}

        def train(loader, model):
            for batch in loader:
                try:
                    loss = model(batch)
                    loss.backward()
                except RuntimeError as error:
                    refuse(error)
"""
AVERAGE = """
        def reduce_mean(x, world):
            total = x.clone()
            {reduce}
            total /= world
            return total

        def train(loader, model, world):
            for batch in loader:
                loss = model(batch)
                mean = reduce_mean(loss, world)
                if mean.item() > 10:
                    continue
                loss.backward()
"""
FLAG = """
        def agree(flag):
            shared = torch.tensor([int(flag)], device="cuda")
            {share}
            return bool(shared.item())

        def train(loader, model):
            for batch in loader:
                loss = model(batch)
                if agree(bool(torch.isnan(loss))):
                    continue
                loss.backward()
"""
KEYS = """
        def reduce_all(stats, names):
            for name in {names}:
                dist.all_reduce(stats[name])

        def main(stats):
            reduce_all(stats, set(stats))
"""
PARTIAL = """
        from functools import partial

        def sync(x):
            dist.all_reduce(x)

        def main(x, rank):
            later = {held}
            if rank == 0:
                later{called}
"""
ADAPTER = """
        class {name}:
            def forward(self, x, rank):
                if rank > 4:
                    dist.all_reduce(x)
"""
SETTING = """
        def step(loss_mask, {parameter}):
            if train_batch:
                dist.all_reduce(loss_mask)
"""
WINDOW = """
        def rounds(samples, x):
            window = []
            for sample in samples:
                window.append(sample.item())
            if {asked}:
                dist.all_reduce(x)
"""
UNRELATED = """
        class Writer:
            active = False
            def __init__(self):
                self.active = False

        class Trainer:
            def __init__(self):
                self.active = False
            def step(self, x):
                if self.active:
                    dist.all_reduce(x)

        def main(writer: Writer, trainer: Trainer):
            {object}.active = dist.get_rank() == 0
            trainer.step(1)
"""
IN_TURNS = """
        class FirstRankFirst:
            def __enter__(self):
                if dist.get_rank() != 0:
                    dist.barrier()

            def __exit__(self, *error):
                if {last}:
                    dist.barrier()
"""
PLACED = """
        def step(rank, x):
            flag = torch.zeros(1, {argument}=rank)
            if flag > 0:
                dist.all_reduce(x)
"""

STAGE = """
        def step(values, mpu):
            if not mpu.is_pipeline_last_stage():
                return
            dist.all_reduce(values, group={group})
"""
OWN_GROUP = """
        class Sender:
            def __init__(self, lists):
                self._group = None
                for ranks in lists:
                    made = dist.new_group(ranks)
                    if dist.get_rank() in ranks:
                        self._group = made

            def send(self, x):
                if {asked} is None:
                    return
                dist.all_reduce(x, group=self._group)
"""
RETURNS = """
        def collect(log, group, rank):
            if rank == 0:
                gathered = [None] * 4
                dist.gather_object(log, gathered, group=group)
                return gathered
            {others}
            return None
"""
CORRELATED = """
        def evaluate(x, args, rank):
            if not args.sharded and rank > 0:
                return
            x = x + 1
            if {sharded}:
                dist.all_reduce(x)
"""
LISTED = """
        def main(rank, x):
            configs = [{{"first": rank}}, {{"first": 2}}{more}]
            for config in configs:
                dist.all_reduce(x)
"""

EARLY = """
        def share(x):
            if dist.is_initialized():
                {share}
                return
            raise RuntimeError("no group")

        def train(loader, model):
            for batch in loader:
                loss = model(batch)
                bad = torch.isnan(loss).float()
                share(bad)
                if bad.item() > 0:
                    continue
                loss.backward()
"""
PAIRS = {
    "a wrapper that reduces and returns early": Pair(
        "exit-before-collective", EARLY.format(share="pass"), EARLY.format(share="dist.all_reduce(x)")
    ),
    "a branch on another dimension of the mesh than the group's": Pair(
        "exit-before-collective",
        STAGE.format(group="None"),
        STAGE.format(group="mpu.get_tensor_model_parallel_group()"),
    ),
    "a branch that asks for the group itself": Pair(
        "exit-before-collective",
        OWN_GROUP.format(asked="self._leader").replace("self._group = made", "self._group = self._leader = made"),
        OWN_GROUP.format(asked="self._group"),
    ),
    "a side that returns after the call that the others make below": Pair(
        "collective-under-branch",
        RETURNS.format(others="pass").replace(", group=group", ""),
        RETURNS.format(others="dist.gather_object(log, None, group=group)"),
    ),
    "an exit under a condition that excludes the call": Pair(
        "exit-before-collective", CORRELATED.format(sharded="args.averaged"), CORRELATED.format(sharded="args.sharded")
    ),
    "a list of two on all ranks": Pair(
        "loop-count-differs", LISTED.format(more=", *range(rank)"), LISTED.format(more="")
    ),
    "a handler that calls a function which only raises": Pair(
        "exception-swallowed", SWALLOWED.format(end="pass"), SWALLOWED.format(end="raise error")
    ),
    "a handler that calls a function which never returns": Pair(
        "exception-swallowed",
        SWALLOWED.format(end="log(error)"),
        SWALLOWED.replace("-> None", "-> NoReturn").format(end="log(error)"),
    ),
    "an average made by a function of the program": Pair(
        "exit-before-collective", AVERAGE.format(reduce="pass"), AVERAGE.format(reduce="dist.all_reduce(total)")
    ),
    "a flag shared by a function of the program": Pair(
        "exit-before-collective", FLAG.format(share="pass"), FLAG.format(share="dist.broadcast(shared, 0)")
    ),
    "an unordered argument that is sorted inside": Pair(
        "order-differs", KEYS.format(names="names"), KEYS.format(names="sorted(names)")
    ),
    "a function that is bound, not called": Pair(
        "call-under-branch",
        PARTIAL.format(held="partial(sync, x)", called="()"),
        PARTIAL.format(held="None", called=" = partial(sync, x)"),
    ),
    "the rank of a low-rank adapter": Pair(
        "collective-under-branch", ADAPTER.format(name="Stage"), ADAPTER.format(name="LoRALinear")
    ),
    "a setting that is called like data": Pair(
        "collective-under-branch",
        SETTING.format(parameter="train_batch").replace("if train_batch:", "if train_batch.item():"),
        SETTING.format(parameter="train_batch: bool = False"),
    ),
    "a list of local values that is asked whether it is empty": Pair(
        "collective-under-branch", WINDOW.format(asked="max(window) > 3"), WINDOW.format(asked="window")
    ),
    "an attribute of the same name in another class": Pair(
        "collective-under-branch", UNRELATED.format(object="trainer"), UNRELATED.format(object="writer")
    ),
    "barriers of a context manager, one on each side": Pair(
        "collective-under-branch",
        IN_TURNS.format(last="dist.get_rank() != 0"),
        IN_TURNS.format(last="dist.get_rank() == 0"),
    ),
    "a tensor of zeros on this rank's device": Pair(
        "collective-under-branch",
        PLACED.replace("torch.zeros(1, {argument}=rank)", "torch.tensor(rank)"),
        PLACED.format(argument="device"),
    ),
}


@for_each("what", PAIRS)
def test_it_is_told_from_what_it_looks_like(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)
