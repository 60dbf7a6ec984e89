"""What ranks do in the jobs of test_consensus.py. Each answers with values, or with what was raised."""

import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from forkpoint import consensus as fc

STAYS = "stays"
"""Until so many ranks have answered: rank 0 has the store, which the others still read."""
LONG = "x" * 1000


def raised(error: BaseException) -> dict[str, object]:
    fields = {name: getattr(error, name, None) for name in ("absent", "odd", "failed")}
    notes = getattr(error, "__notes__", [])
    return {"raised": type(error).__name__, "says": str(error), "cause": repr(error.__cause__), "notes": notes} | fields


def attempt(function: Callable[[], object]) -> object:
    try:
        return function()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the answer
        return raised(error)


# ------------------------------------------------------------------------------------------------- four healthy ranks


def healthy(rank: int) -> dict[str, object]:
    """One job for all that leaves the group intact. Its end is a sum over all ranks: nobody was left behind."""
    found: dict[str, object] = {}
    for part in (decisions, values, exceptions, loaders, subgroups, alone, compiled):
        found |= {name: attempt(check) for name, check in part(rank).items()}
    total = torch.ones(1)
    dist.all_reduce(total)
    return found | {"end": total.item()}


def decisions(rank: int) -> dict[str, Callable[[], object]]:
    return {
        "any": lambda: [fc.any_rank(rank == 2), fc.any_rank(torch.zeros(1)), fc.any_rank(flag=True)],
        "all": lambda: [fc.all_ranks(rank != 2), fc.all_ranks(torch.ones(1)), fc.all_ranks(flag=False)],
        "short": lambda: fc.broadcast_decision(lambda: {"rank": rank, "at": (1, 2.5, None)}, src=3),
        "long": lambda: fc.broadcast_decision(lambda: [LONG, rank, "ä" * 300], src=1),
        "undecided": lambda: fc.broadcast_decision(lambda: 1 // 0, src=2, what="learning rate"),
        "too long": lambda: fc.broadcast_decision(lambda: "x" * (2 << 20)),
        "no such source": lambda: fc.broadcast_decision(lambda: 1, src=9),
        "two sources": lambda: fc.broadcast_decision(lambda: rank, src=rank // 2),
        "decided by a collective": lambda: fc.broadcast_decision(lambda: dist.barrier()),  # noqa: PLW0108 - its line is named
        "decided by an agreement": lambda: fc.broadcast_decision(lambda: fc.any_rank(flag=True)),
        "another question": lambda: fc.any_rank(flag=True) if rank == 1 else fc.all_ranks(flag=True, what="ready"),
    }


def values(rank: int) -> dict[str, Callable[[], object]]:
    return {
        "same": lambda: fc.same_on_all_ranks({"b": [1, 2.5], "a": None, "nan": float("nan")}, "settings")["b"],
        "odd": lambda: fc.same_on_all_ranks(7 if rank == 2 else 8, "micro-batches"),
        "two odd": lambda: fc.same_on_all_ranks([8, 8, 9, 7][rank], "micro-batches"),
        "tie": lambda: fc.same_on_all_ranks(rank // 2, "micro-batches"),
        "long values": lambda: fc.same_on_all_ranks([LONG, rank == 3], "keys"),
        "not json": lambda: fc.same_on_all_ranks({1} if rank == 1 else [1], "keys"),
    }


def exceptions(rank: int) -> dict[str, Callable[[], object]]:
    def block(error: BaseException | None = None, inside: Callable[[], object] = lambda: "done") -> object:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with fc.agree_on_exception("load"):
                if error is not None:
                    raise error
                result = inside()
        return [result, [f"{Path(w.filename).name}: {w.message}" for w in caught]]

    def nested() -> None:
        with fc.agree_on_exception("outer"):
            block(KeyError("step") if rank == 3 else None)

    def wrapped() -> None:
        with fc.agree_on_exception("outer"):
            try:
                block(ValueError("inner") if rank == 0 else None)
            except ValueError as error:
                raise KeyError("wrapped") from error

    return {
        "no exception": block,
        "exception": lambda: block(ValueError("record 17") if rank == 1 else None),
        "two exceptions": lambda: block(ValueError("record 17") if rank in {1, 2} else None),
        "exit": lambda: block(SystemExit(3) if rank == 0 else None),
        "nested": nested,
        "wrapped": wrapped,
        "agreement inside": lambda: block(ValueError("early") if rank == 1 else None, lambda: fc.any_rank(flag=True)),
        "collective inside": lambda: block(None, lambda: dist.all_reduce(torch.ones(1))),
        "only agreements inside": lambda: block(None, lambda: fc.broadcast_decision(lambda: LONG) == LONG),
    }


def loaders(rank: int) -> dict[str, Callable[[], object]]:
    def padded() -> list[object]:
        batches = fc.join_uneven(range(lengths[rank]), pad="last")
        return [[batch, batches.is_repeat] for batch in batches]

    def bad_record():
        yield 0
        if rank == 3:
            raise OSError("record 1 is cut")
        yield 1

    lengths = [3, 2, 4, 3]
    return {
        "shortest": lambda: list(fc.join_uneven(range(lengths[rank]))),
        "padded": padded,
        "empty": lambda: list(fc.join_uneven(range(min(rank, 2)))),
        "none to repeat": lambda: list(fc.join_uneven(range(min(rank, 2)), pad="last")),
        "all empty": lambda: list(fc.join_uneven([], pad="last")),
        "loader raises": lambda: list(fc.join_uneven(bad_record())),
    }


def subgroups(rank: int) -> dict[str, Callable[[], object]]:
    pair = dist.new_group([1, 3])
    triple = dist.new_group([3, 1, 2])
    return {
        "member": lambda: [fc.any_rank(rank == 3, pair), fc.all_ranks(rank == 3, pair)],
        "outside the block": lambda: fc.agree_on_exception(group=pair).__enter__(),
        "odd of three": lambda: fc.same_on_all_ranks(rank == 3, "stage", triple),
        "source by global rank": lambda: fc.broadcast_decision(lambda: rank, src=3, group=triple),
        "source outside": lambda: fc.broadcast_decision(lambda: rank, src=0, group=triple),
        "batches": lambda: list(fc.join_uneven("ab" if rank == 3 else "a", pair)),
    }


def alone(rank: int) -> dict[str, Callable[[], object]]:
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    mesh = init_device_mesh("cpu", (4,))
    sharded = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    columns = distribute_tensor(torch.ones(4, 2), mesh, [Shard(1)])
    own = [dist.new_group([member]) for member in range(4)][rank]
    last = torch.zeros(1)

    def message() -> float:
        dist.send(torch.ones(1), 3)
        return 1.0

    def backward() -> object:
        loss = model.module(torch.ones(3, 2)).sum()
        return fc.rank_zero_only(loss.backward)()

    def p2p() -> object:
        if rank == 3:
            dist.recv(last, 0)
        return [fc.rank_zero_only(message)(), last.item()]

    @torch.compile(backend="aot_eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x, "sum", mesh.get_group()) + 1

    inside: dict[str, Callable[[], object]] = {
        "compiled inside": lambda: step(torch.ones(1)),
        "all_reduce inside": lambda: dist.all_reduce(torch.ones(1)),
        "objects inside": lambda: dist.all_gather_object([None] * 4, rank),
        "barrier inside": dist.barrier,
        "functional inside": lambda: functional.all_reduce(torch.ones(1), "sum", mesh.get_group()),
        "DDP model inside": lambda: model(torch.ones(3, 2)),
        "DTensor inside": lambda: sharded.redistribute(mesh, [Replicate()]),
        "DTensor op inside": lambda: sharded + columns,
        "agreement of one": lambda: fc.any_rank(flag=True),
        "plain inside": lambda: model.module(torch.ones(3, 2)).shape[0],
        "group of one inside": lambda: dist.all_reduce(torch.ones(1), group=own),
    }
    found = {name: (lambda check=check: fc.rank_zero_only(check)()) for name, check in inside.items()}
    return found | {
        "backward of a plain model": backward,
        "message inside": p2p,
        "on rank 2": fc.rank_only(2)(lambda: rank),
    }


def compiled(rank: int) -> dict[str, Callable[[], object]]:
    @torch.compile(backend="eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if fc.any_rank(rank == 1, what="in a compiled function"):
            y = y + 1
        return y.sum()

    def train() -> list[object]:
        x = torch.ones(3, requires_grad=True)
        step(x).backward()
        assert x.grad is not None
        return [step(x).item(), x.grad.tolist()]

    def without_gradients() -> list[bool]:
        with torch.inference_mode():
            return [fc.any_rank(rank == 1), torch.is_inference_mode_enabled()]

    return {"compiled": train, "inference mode": without_gradients}


# ---------------------------------------------------------------------------------------------- jobs that end the group


def point(name: str) -> None:
    """This rank has come so far, as `reached` counts."""
    dist.distributed_c10d._get_default_store().add(name, 1)


def reached(name: str, ranks: int) -> None:
    while dist.distributed_c10d._get_default_store().add(name, 0) < ranks:
        time.sleep(0.05)


def late(rank: int) -> dict[str, object]:
    """Rank 2 comes when the others have given up."""
    if rank == 2:
        reached("gave up", 2)
    vote = attempt(lambda: fc.any_rank(flag=False, what="stop early", timeout_s=15.0))
    point("gave up")
    return {"vote": vote, STAYS: 3}


def slow(rank: int) -> dict[str, object]:
    """Rank 1 is late, but in time."""
    if rank == 1:
        time.sleep(2.5)
    return {"vote": attempt(lambda: fc.any_rank(rank == 1, timeout_s=300.0))}


def dead(rank: int) -> dict[str, object]:
    """Rank 1 dies before it comes."""
    if rank == 1:
        reached("voting", 2)
        time.sleep(1.5)
        os._exit(1)
    point("voting")

    def block() -> None:
        with fc.agree_on_exception("load", timeout_s=20.0):
            raise ValueError("record 17")

    return {"vote": attempt(block if rank == 2 else lambda: fc.any_rank(flag=False, timeout_s=20.0)), STAYS: 2}


def store_stopped(rank: int) -> dict[str, object]:
    """Rank 0, which has the store, is stopped for good."""
    fc.any_rank(flag=True)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    return {"vote": attempt(lambda: fc.any_rank(flag=False, timeout_s=2.0))}


def world_of_one(rank: int) -> dict[str, object]:
    def block() -> None:
        with fc.agree_on_exception():
            raise ValueError("mine")

    return {
        "any": [fc.any_rank(flag=True), fc.any_rank(flag=False), fc.all_ranks(flag=True), fc.all_ranks(flag=False)],
        "same": fc.same_on_all_ranks([1], "list"),
        "decision": fc.broadcast_decision(lambda: (1, LONG)),
        "undecided": attempt(lambda: fc.broadcast_decision(lambda: 1 // 0)),
        "exception": attempt(block),
        "batches": list(fc.join_uneven(range(3), pad="last")),
        "rank zero": fc.rank_zero_only(lambda: "ran")(),
    }


JOBS: list[tuple[str, int, Callable[[int], dict[str, object]]]] = [
    ("healthy", 4, healthy),
    ("store stopped", 2, store_stopped),
    ("late", 3, late),
    ("dead", 3, dead),
    ("slow", 2, slow),
    ("world of one", 1, world_of_one),
]
