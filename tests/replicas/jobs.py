"""What ranks do in the jobs of test_replicas.py. Each answers with values."""

import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from forkpoint import replicas

FLIPS = int(os.environ.get("REPLICAS_FLIPS", "100"))
STEPS = int(os.environ.get("REPLICAS_STEPS", "150"))


class Net(nn.Module):
    """A little of everything that makes replicas look unequal although they are well."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3))
        self.deep = nn.Sequential(nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 4)
        self.register_buffer("table", torch.arange(64.0))

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x) + self.table / 64
        return self.head(checkpoint(self.deep, features, use_reentrant=False))


def told(report: replicas.Report | None) -> dict[str, object] | None:
    if report is None:
        return None
    first = report.mismatches[0] if report.mismatches else None
    return {
        "step": report.step,
        "equal": report.equal,
        "odd": list(report.odd),
        "kind": report.kind,
        "last_equal": report.last_equal,
        "what": first and first.what,
        "tensor": first and first.tensor,
        "why": first and first.why,
        "tensors": [found.tensor for found in report.mismatches],
    }


@contextmanager
def silently() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def made(dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 4)).to(dtype))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def _go_on() -> None:
    pass


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: int, *, between: Callable[[], object] = _go_on
) -> None:
    source = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    x = torch.randn(8, 16, generator=source).to(next(model.parameters()).dtype)
    optimizer.zero_grad()
    cross_entropy(model(x).float(), (x.float().sum(1) > 0).long()).backward()
    between()
    optimizer.step()


def folder() -> str:
    return os.environ["FORKPOINT_REPLICAS_DIR"]


# ----------------------------------------------------------------------------------------------------- flipped bits


def flip(tensor: Tensor, place: int, bit: int) -> None:
    """Twice is as before."""
    words = tensor.detach().view(-1).view({1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])
    last = 8 * tensor.element_size() - 1
    words[place] ^= -(1 << last) if bit == last else 1 << bit


def flips(rank: int) -> dict[str, object]:
    """Places, drawn alike on all ranks: which rank, tensor, element and bit. Looked for, then flipped back."""
    draw = random.Random(7)
    found: list[object] = []
    for dtype in (torch.float32, torch.bfloat16):
        model, optimizer = made(dtype)
        with silently():
            watch = replicas.watch(model, optimizer, every=1)
            for step in range(2):
                train(model, optimizer, step)
                watch.step()
            found += [one_flip(rank, draw, model, optimizer, watch) for _ in range(FLIPS // 2)]
            after = watch.step()
            watch.close()
        assert after is not None
        found.append(after.equal)
    return {"found": found}


def one_flip(rank, draw, model, optimizer, watch) -> list[object]:
    names = dict(model.module.named_parameters())
    kind = draw.choice(["parameter", "gradient", "exp_avg", "exp_avg_sq"])
    name = draw.choice(sorted(names))
    odd, parameter = draw.randrange(4), names[name]
    tensor = {"parameter": parameter, "gradient": parameter.grad}.get(kind)
    tensor = optimizer.state[parameter][kind] if tensor is None else tensor
    place, bit = draw.randrange(tensor.numel()), draw.randrange(8 * tensor.element_size())
    if rank == odd:
        flip(tensor, place, bit)
    report = watch.gradients() if kind == "gradient" else watch.step()
    if rank == odd:
        flip(tensor, place, bit)
    if kind == "gradient":
        watch.step()  # says it again, and begins anew
    expected = name if kind in {"parameter", "gradient"} else f"{name}.{kind}"
    if report is None or report.equal:
        return ["missed", kind, expected, place, bit]
    first = report.mismatches[0]
    right = (report.odd, first.tensor, first.kind) == ((odd,), expected, replicas.Kind.SUSPECTED_HARDWARE)
    return ["right"] if right else [str(report), kind, expected, odd]


def trained_on(rank: int, where: str, every: int = 10) -> object:
    """A bit of rank 2 changes in step 13 of a job that goes on, and the next check is at 20."""
    model, optimizer = made()

    def fault() -> None:
        if rank != 2 or step != 13:
            return
        weight = model.module[0].weight
        tensor = {"parameter": weight, "gradient": weight.grad, "state": optimizer.state[weight]["exp_avg"]}[where]
        flip(tensor, 5, 22)

    with silently() as caught:
        watch = replicas.watch(model, optimizer, every=every)
        reports = []
        for step in range(1, 21):
            train(model, optimizer, step, between=fault)
            reports.append(watch.step({"constant": 1.0}))
        watch.close()
    return {"reports": [told(r) for r in reports if r], "warned": [str(w.message) for w in caught]}


# --------------------------------------------------------------------------------------------------------- software


def skipped(rank: int, kind: type[torch.optim.Optimizer]) -> object:
    """Rank 1 does not call the optimizer in step 13."""
    model, _ = made()
    optimizer = kind(model.parameters(), lr=1e-2)
    with silently():
        watch = replicas.watch(model, optimizer, every=10)
        for step in range(1, 21):
            with suppress(Enough):
                train(model, optimizer, step, between=_stop if rank == 1 and step == 13 else _go_on)
            report = watch.step()
        watch.close()
    return told(report)


class Enough(Exception):
    pass


def _stop() -> None:
    raise Enough


def stale(rank: int, every: int) -> object:
    """Rank 3 loses the last update of one tensor before the check: it has what it had a step ago."""
    model, optimizer = made()
    weight = model.module[2].weight
    with silently():
        watch = replicas.watch(model, optimizer, every=every)
        for step in range(1, 11):
            before = weight.detach().clone()
            train(model, optimizer, step)
            if rank == 3 and step == 10:
                weight.data.copy_(before)
            report = watch.step()
        watch.close()
    return told(report)


def another_rate(rank: int) -> object:
    model, optimizer = made()
    with silently():
        watch = replicas.watch(model, optimizer, every=5)
        for step in range(1, 6):
            if rank == 0 and step == 4:
                optimizer.param_groups[0]["lr"] = 2e-2
            train(model, optimizer, step)
            report = watch.step()
        watch.close()
    return told(report)


def not_reduced(rank: int) -> object:
    """One layer goes its own way on one rank, all of it: no bit was flipped."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 4))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with silently():
        watch = replicas.watch(model, optimizer, every=3)
        for step in range(1, 4):
            train(model, optimizer, step)
            if rank == 1 and step > 1:
                inner[0].weight.data += 1e-3 * torch.randn(48, 16)
            report = watch.step()
        watch.close()
    return told(report)


def check(rank: int, **given: object) -> object:
    with silently():
        return told(replicas.check(**given))


def plain(rank: int) -> dict[str, object]:
    """One comparison each, of tensors given by name."""
    swapped = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    if rank == 1:
        swapped[[3, 700]] = swapped[[700, 3]]
    seeds = nn.Linear(8, 8).requires_grad_(requires_grad=False)
    nn.init.normal_(seeds.weight, generator=torch.Generator().manual_seed(rank))
    shapes = {"a": torch.zeros(2 + (rank == 3)), "b": torch.zeros(3)}
    order = {name: torch.zeros(2) for name in ("ba" if rank == 2 else "ab")}
    odd_two = torch.tensor([1.0, 2.0, 2.0, 3.0][rank])
    return {
        "swapped": check(rank, tensors={"x": swapped}),
        "shapes": check(rank, tensors=shapes),
        "order": check(rank, tensors=order),
        "no majority": check(rank, tensors={"x": odd_two}),
        "declared": check(rank, tensors={"ema.x": odd_two, "y": torch.zeros(1)}, may_differ=["ema.*"]),
        "scalars": check(rank, tensors={"y": torch.zeros(1)}, scalars={"loss": 1.5 if rank == 2 else 0.5, "lr": 0.1}),
        "equal scalars": check(rank, tensors={"y": torch.zeros(1)}, scalars={"loss": torch.tensor(0.5)}),
        "another seed": check(rank, model=nn.Sequential(seeds, nn.Linear(8, 8))),
        "minus zero": check(rank, tensors={"x": torch.tensor([0.0 if rank else -0.0])}),
        "a pair": check(rank, tensors={"x": odd_two}, group=_pair(rank)),
        "raises": raises(rank),
        "steps": steps(rank),
    }


def _pair(rank: int) -> dist.ProcessGroup:
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return pairs[rank // 2]


def raises(rank: int) -> object:
    watch = replicas.watch(tensors={"x": torch.tensor([0.0, 0.0, 1.0, 0.0][rank])}, every=1, raise_on_mismatch=True)
    try:
        watch.step()
    except replicas.ReplicasDiffer as error:
        return [list(error.report.odd), str(error)]
    finally:
        watch.close()
    return None


def steps(rank: int) -> object:
    """Rank 3 was restarted from an older checkpoint."""
    with silently():
        watch = replicas.watch(tensors={"x": torch.zeros(3)}, every=1)
        report = watch.step(step=40 if rank == 3 else 50)
        watch.close()
    return told(report)


# ----------------------------------------------------------------------------------------------------------- meshes


def meshes(rank: int) -> dict[str, object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return {
        "hsdp": hsdp(rank, mesh),
        "tensor parallel": tensor_parallel(rank, mesh),
        "fsdp": fsdp(rank),
        "flat shards": flat_shards(),
    }


def hsdp(rank: int, mesh) -> object:
    """Two replicas of two shards: rank 1 holds what rank 3 holds."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 4))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    answers = []
    with silently():
        watch = replicas.watch(model, optimizer, every=1)
        for step in range(1, 4):
            train(model, optimizer, step)
            if rank == 3 and step == 3:
                flip(model[0].weight.to_local(), 1, 30)
            answers.append(told(watch.step()))
        watch.close()
    return answers


def tensor_parallel(rank: int, mesh) -> object:
    """Replicated over everything, and sharded over one dimension of the mesh."""
    torch.manual_seed(0)
    model = nn.Module()
    model.norm = nn.Parameter(distribute_tensor(torch.ones(8), mesh, [Replicate(), Replicate()]))
    model.weight = nn.Parameter(distribute_tensor(torch.randn(8, 8), mesh, [Replicate(), Shard(0)]))
    model.tied = model.weight
    if rank == 2:
        flip(model.norm.to_local(), 0, 1)
    return check(rank, model=model)


def fsdp(rank: int) -> object:
    """No replicas at all: nothing to compare but steps, and nothing to complain of."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 48), nn.Linear(48, 4))
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    report = replicas.check(model)
    assert report is not None
    return [report.equal, [[list(one.ranks), one.tensors] for one in report.compared]]


def flat_shards() -> str:
    with silently():
        model = FullyShardedDataParallel(nn.Linear(8, 8), device_id=torch.device("cpu"))
    try:
        replicas.watch(model)
    except replicas.NotDerivable as refused:
        return str(refused)
    return "watched"


# ---------------------------------------------------------------------------------------------------------- healthy


def healthy(rank: int) -> dict[str, object]:
    """Dropout, BatchNorm, accumulation, mixed precision, activation checkpointing; every second step is checked."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)  # dropout is each rank's own
    with silently() as caught:
        watch = replicas.watch(model, optimizer, every=2, check_gradients=True)
        reports = [
            watch.step({"loss": accumulated(model, optimizer, step), "lr": 1e-3}) for step in range(1, STEPS + 1)
        ]
        watch.close()
    lines = (Path(folder()) / f"replicas_rank_{rank}.jsonl").read_text().splitlines()
    return {
        "checks": sum(report is not None for report in reports),
        "alarms": [told(report) for report in reports if report and not report.equal],
        "warned": [str(warning.message) for warning in caught],
        "lines": lines,
        "differ": statistics_differ(model),
    }


def accumulated(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
    optimizer.zero_grad()
    total = torch.zeros(())
    for part in range(2):
        x = torch.randn(8, 16)
        with model.no_sync() if part == 0 else nullcontext(), torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(model(x).float(), (x.sum(1) > 0).long())
            loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    dist.all_reduce(total)
    return total


def statistics_differ(model: DistributedDataParallel) -> bool:
    """So that a healthy run means something: these buffers are not equal, and nobody complains."""
    means = [torch.empty(64) for _ in range(dist.get_world_size())]
    dist.all_gather(means, model.module.body[1].running_mean)
    return not torch.equal(means[0], means[1])


# ------------------------------------------------------------------------------------------- two ranks, and one late


def two(rank: int) -> dict[str, object]:
    frozen = torch.arange(2000.0)
    with silently():
        watch = replicas.watch(tensors={"x": frozen}, every=1)
        before = watch.step()
        if rank == 1:
            flip(frozen, 1000, 3)
        frozen_now = told(watch.step())
        watch.step()
        watch.close()
    return {
        "before": told(before),
        "frozen": frozen_now,
        "moving": trained_two(rank),
        "recheck": rechecks(rank),
        "lines": (Path(folder()) / f"replicas_rank_{rank}.jsonl").read_text().splitlines(),
        "late": late(rank),
    }


def trained_two(rank: int) -> object:
    model, optimizer = made()
    with silently():
        watch = replicas.watch(model, optimizer, every=1)
        for step in range(1, 4):
            train(model, optimizer, step)
            if rank == 0 and step == 3:
                flip(model.module[0].weight, 3, 12)
            report = watch.step()
        watch.close()
    return told(report)


def rechecks(rank: int) -> dict[str, object]:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(3))
    count = iter(range(10))

    def said(run) -> list[object]:
        answer = replicas.recheck(run, suspect=1)
        return [answer.result, answer.rank, list(answer.missing)]

    return {
        "golden": said(None),
        "dropout": said(lambda: nn.functional.dropout(x @ x, 0.5)),
        "persistent": said(lambda: {"y": x @ x + (1e-3 if rank == 1 else 0.0)}),
        "transient": said(lambda: [x @ x + (next(count) if rank == 1 else 0)]),
        "fails": said(lambda: x @ x if rank == 0 else x[70]),
        "does not repeat": said(lambda: x + next(count)),
    }


def late(rank: int) -> object:
    """Rank 1 never comes to the check."""
    with silently() as caught:
        watch = replicas.watch(tensors={"x": torch.zeros(1)}, every=1, timeout_s=15.0)
        watch.step()
        answers = [] if rank == 1 else [told(watch.step()), told(watch.step())]
    return [answers, [str(warning.message) for warning in caught]]


def with_folder(answer: Callable[[int], dict[str, object]], rank: int) -> dict[str, object]:
    os.environ["FORKPOINT_REPLICAS_DIR"] = tempfile.mkdtemp()
    torch.set_num_threads(1)
    return answer(rank)


def faults(rank: int) -> dict[str, object]:
    found = {f"trained on, {where}": trained_on(rank, where) for where in ("parameter", "gradient", "state")}
    found |= {f"skipped, {kind.__name__}": skipped(rank, kind) for kind in (torch.optim.AdamW, torch.optim.SGD)}
    found |= {f"stale, every {every}": stale(rank, every) for every in (1, 5)}
    return found | {"another rate": another_rate(rank), "not reduced": not_reduced(rank)}


JOBS = [
    (name, world, partial(with_folder, answer))
    for name, world, answer in (
        ("flips", 4, flips),
        ("faults", 4, faults),
        ("plain", 4, plain),
        ("meshes", 4, meshes),
        ("healthy", 4, healthy),
        ("two", 2, two),
    )
]
