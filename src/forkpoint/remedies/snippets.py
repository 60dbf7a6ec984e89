"""Code that patches insert into the job's files. It is text here and never runs in forkpoint."""

import ast
from dataclasses import dataclass

from forkpoint.remedies.edit import free_name
from forkpoint.remedies.scene import Scene
from forkpoint.source.bridge.fork import Fork
from forkpoint.source.code import Module
from forkpoint.source.syntax import names_set_in

SAME = '''
def _forkpoint_same(what, value, ranks=None, seconds=10, calls={}):  # forkpoint probe
    """Stops the job where ranks come with different values or do not come. It asks the store: no collective."""
    import datetime
    import re
    import time
    import torch.distributed as dist

    def show(v):
        if hasattr(v, "shape"):
            return f"{tuple(v.shape)} {v.dtype}"
        if isinstance(v, (list, tuple)):
            return "[" + ", ".join(map(show, v)) + "]"
        return re.sub(r" at 0x[0-9a-f]+", "", repr(v))

    me, ranks = dist.get_rank(), list(ranks or range(dist.get_world_size()))
    if me not in ranks:
        return value
    store = dist.distributed_c10d._get_default_store()
    calls[what] = n = calls.get(what, 0) + 1
    keys = [f"forkpoint/{what}/{n}/{rank}" for rank in ranks]
    store.set(f"forkpoint/{what}/{n}/{me}", show(value))
    try:
        store.wait(keys, datetime.timedelta(seconds=seconds))
        said = [answer.decode() for answer in store.multi_get(keys)]
        store.delete_key(f"forkpoint/{what}/{n - 2}/{me}")  # read by all, or they would not have come here
    except RuntimeError:
        said = [store.get(key).decode() if store.check([key]) else f"not here after {seconds} s" for key in keys]
    if len(set(said)) == 1:
        return value
    order = sorted(set(said), key=lambda answer: (said.count(answer), answer))
    told = "; ".join(f"rank {', '.join(str(r) for r, a in zip(ranks, said) if a == one)}: {one}" for one in order)
    time.sleep(0.5 if said[ranks.index(me)] == order[0] else 1.5)  # the odd ranks fail first; rank 0 keeps the store
    raise BaseException(f"forkpoint probe, seen on rank {me}: {what} differs (time {n}): {told}")  # nobody catches it
'''

ROUNDS = '''
def _forkpoint_rounds(what, items, **options):  # forkpoint probe
    """The same items. Stops the job before the round that not all ranks have."""
    items = iter(items)
    while True:
        item = next(items, _forkpoint_rounds)
        ended = item is _forkpoint_rounds
        _forkpoint_same(what, "has ended" if ended else "goes on", **options)
        if ended:
            return
        yield item
'''

WITHIN = '''
def _forkpoint_within(what, function, *args, **kwargs):  # forkpoint probe
    """Calls it. If that takes longer than 10 s, says where this rank is, and ends it."""
    import faulthandler
    import os
    import sys
    import threading

    said = f"forkpoint probe: rank {os.environ.get('RANK', '?')} has been in {what} for 10 s; its stacks follow"
    timer = threading.Timer(9.5, print, [said], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(10, exit=True)  # needs no GIL
    try:
        return function(*args, **kwargs)
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
'''

AGREE = '''
def {name}(flag{group_parameter}):
    """{says}"""{imports}
    agreed = {torch}.tensor(int(flag), device="cuda" if "nccl" in {dist}.get_backend({group}) else "cpu")
    {dist}.all_reduce(agreed, op={dist}.ReduceOp.{op}{group_argument})
    return {made}(agreed.item())
'''

IN_STEP = '''
def {name}(items{group_parameter}):
    """The same items, for as many rounds as every rank has."""
    items, end = iter(items), object()
    while True:
        item = next(items, end)
        if not {agree}(item is not end{group_argument}):
            return
        yield item
'''

RAISE_TOGETHER = '''
def {name}(error_type, function, *args, **kwargs):
    """Calls it, and raises on every rank if it raises on one."""
    result = error = None
    try:
        result = function(*args, **kwargs)
    except error_type as err:
        error = err
    if {agree}(error is not None):
        raise error or error_type("on another rank")
    return result
'''

OF_RANK_0 = '''
def {name}(value):
    """What rank 0 has, on every rank."""{imports}
    said = [value]
    {dist}.broadcast_object_list(said, src=0)
    return said[0]
'''

GATHER_UNEVEN = '''
def {name}(parts, local, **options):
    """all_gather of tensors whose first dimension differs by rank: padded to the longest, then cut."""{imports}
    rows = {torch}.tensor([local.shape[0]], device=local.device)
    counts = [{torch}.empty_like(rows) for _ in parts]
    {dist}.all_gather(counts, rows, **options)
    padded = local.new_zeros(max(int(n) for n in counts), *local.shape[1:])
    padded[: local.shape[0]] = local
    gathered = [{torch}.empty_like(padded) for _ in parts]
    {dist}.all_gather(gathered, padded, **options)
    parts[:] = [part[: int(n)] for part, n in zip(gathered, counts)]
'''


@dataclass(frozen=True, slots=True)
class TorchNames:
    torch: str | None
    dist: str | None

    @property
    def imports(self) -> str:
        """Import lines for a function, of what the module does not import."""
        lines = ["import torch"] if self.torch is None else []
        lines += ["import torch.distributed as dist"] if self.dist is None else []
        return "".join(f"\n    {line}" for line in lines)

    @property
    def fields(self) -> dict[str, str]:
        return {"torch": self.torch or "torch", "dist": self.dist or "dist", "imports": self.imports}

    @property
    def dist_anywhere(self) -> str:
        """An expression that works without an import."""
        return self.dist or "__import__('torch').distributed"


def torch_names(module: Module) -> TorchNames:
    known = {dotted: name for name, dotted in module.imports.items()}
    return TorchNames(known.get("torch"), known.get("torch.distributed"))


_SAYS = {
    "any_rank": ("True on every rank if it is on one.", "MAX", "bool"),
    "all_ranks": ("True on every rank only if it is on all.", "MIN", "bool"),
    "fewest": ("The smallest of what the ranks pass, on every rank.", "MIN", "int"),
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """A small function by which ranks agree on a value, written for the module that gets it."""

    name: str
    text: str
    argument: str
    """What follows the flag: `, self.tp`, or nothing."""


def agreement(kind: str, module: Module, group: str) -> Agreement:
    says, op, made = _SAYS[kind]
    name = free_name(kind, module)
    text = AGREE.format(
        name=name,
        says=says,
        op=op,
        made=made,
        group="group" if group else "",
        group_parameter=", group" if group else "",
        group_argument=", group=group" if group else "",
        **torch_names(module).fields,
    )
    return Agreement(name, text, f", {group}" if group else "")


def group_at(fork: Fork, scene: Scene) -> str | None:
    """The expression for the group at the fork; empty for the default group, None if it has no name there."""
    named = fork.step.group if fork.step else None
    if named is None:
        return "" if scene.in_default_group else None
    if fork.step is None or fork.step.reach.through is not None:
        return None
    root = next((n.id for n in ast.walk(ast.parse(named)) if isinstance(n, ast.Name)), None)
    later = [s for s in fork.function.body if s.lineno >= fork.node.lineno]
    return None if root is None or root in names_set_in(later) else named
