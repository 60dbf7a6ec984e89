"""Repeats a suspicious step, twice on the suspect and twice on a peer: was it the device, a glitch, or the data?"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from enum import StrEnum

import torch
import torch.distributed as dist
from torch import Tensor

from forkpoint.model.world import name_ranks
from forkpoint.replicas.checksums import checksums
from forkpoint.replicas.compare import Exchange
from forkpoint.replicas.items import digest
from forkpoint.replicas.report import ReplicasError
from forkpoint.replicas.watcher import TIMEOUT_S, Journal

# ---------------------------------------------------------------------------------------------------------------------
# The settings of this process that make a computation repeatable.


@dataclass(frozen=True, slots=True)
class Determinism:
    deterministic_algorithms: bool
    cudnn_benchmark: bool
    cublas_workspace: str | None
    float32_precision: str
    """`high` and `medium` allow TF32: less exact, but not less repeatable."""
    device: str
    threads: int
    torch: str

    def missing(self) -> tuple[str, ...]:
        """Settings that make a step repeatable and are not in effect on this device."""
        if self.device == "cpu":
            return ()
        wanted = {
            "torch.use_deterministic_algorithms(True)": self.deterministic_algorithms,
            "torch.backends.cudnn.benchmark = False": not self.cudnn_benchmark,
            "CUBLAS_WORKSPACE_CONFIG=:4096:8": self.cublas_workspace in {":4096:8", ":16:8"},
        }
        return tuple(setting for setting, has in wanted.items() if not has)

    def told(self) -> str:
        """Must be equal on both ranks, or their results cannot be compared."""
        return " ".join(map(str, astuple(self)))


def determinism(device: torch.device) -> Determinism:
    return Determinism(
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        torch.get_float32_matmul_precision(),
        "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device),
        torch.get_num_threads(),
        torch.__version__,
    )


# ---------------------------------------------------------------------------------------------------------------------
# A computation with an exactly known result: integers so small that no order of summation rounds.

_SIZE = 512
_LARGEST = 15
"""512 * 15 * 15 is below 2**24: exact in float32 in any order, and the factors are exact in bf16 and TF32."""
_DTYPES = (torch.float32, torch.bfloat16)


def golden_gemm(device: torch.device) -> list[Tensor]:
    """The difference from the exact product, in each dtype. All zeros on a working device."""
    left, right = (_whole_numbers(seed) for seed in (1, 2))
    exact = (left @ right).to(device)
    found: list[Tensor] = []
    for dtype in _DTYPES:
        product = left.to(device, dtype) @ right.to(device, dtype)
        found.append(product.to(torch.float32) - exact.to(dtype).to(torch.float32))
    return found


def golden_sum(device: torch.device, group: dist.ProcessGroup) -> list[Tensor]:
    """The difference between an all-reduce of a known pattern and its exact sum."""
    found: list[Tensor] = []
    for dtype in _DTYPES:
        pattern = (torch.arange(1 << 16, device=device) % 61).to(dtype)
        total = pattern.clone()
        dist.all_reduce(total, group=group)
        found.append((total - pattern * group.size()).to(torch.float32))
    return found


def _whole_numbers(seed: int) -> Tensor:
    """On the host, as int64: the reference must not come from the device under test."""
    source = torch.Generator().manual_seed(seed)
    return torch.randint(-_LARGEST, _LARGEST + 1, (_SIZE, _SIZE), generator=source)


Outcome = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
_SEED = 20_011


class Result(StrEnum):
    TRANSIENT = "transient"
    """The same run on the same device gave two different results."""
    PERSISTENT = "persistent"
    """The device reproducibly gives a result that the other does not."""
    SAME_EVERYWHERE = "same-everywhere"
    """Nothing deviates: it was the data or the optimisation, or a fault that did not recur."""
    CANNOT_SAY = "cannot-say"


@dataclass(frozen=True, slots=True)
class Recheck:
    result: Result
    rank: int | None
    """The rank whose device is at fault, if known."""
    suspect: int
    peer: int
    why: str
    missing: tuple[str, ...]
    """Determinism settings that were missing. A computation with a known result needs none."""
    determinism: Determinism
    """This rank's settings."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What each rank sends, in this order."""

    failed: int
    first: int
    second: int
    wrong: int
    """The result differs from the known one."""
    environment: int


def recheck(
    run: Callable[[], Outcome] | None = None,
    *,
    suspect: int,
    peer: int | None = None,
    device: torch.device | None = None,
    folder: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Recheck:
    """Every rank calls it, two of them compute, and all get the answer.

    `run` repeats a step from saved inputs and returns what it computed. It starts from a fixed seed, must leave the model
    as it was, and must not call a collective. None: a product of matrices and an all-reduce with known results.
    """
    world = dist.get_world_size() if dist.is_initialized() else 1
    other = (suspect + 1) % world if peer is None else peer
    if suspect == other or not (0 <= suspect < world and 0 <= other < world):
        raise ReplicasError(f"recheck needs two ranks of the job: suspect {suspect}, peer {other}, world of {world}")
    here = device or _default_device()
    settings = determinism(here)
    said = _Said(0, 0, 0, 0, digest([ord(letter) for letter in settings.told()]))
    if dist.get_rank() in {suspect, other}:
        said = _run_twice(run or _golden(here, (suspect, other)), here, said, golden=run is None)
    numbers = list(asdict(said).values())
    told = [_Said(*row) for row in Exchange(timeout_s).gather(tuple(range(world)), numbers)]
    missing = settings.missing() if run is not None else ()
    result, rank, why = _conclude({suspect: told[suspect], other: told[other]}, missing, golden=run is None)
    answer = Recheck(result, rank, suspect, other, why, missing, settings)
    _write(answer, folder)
    return answer


def _run_twice(run: Callable[[], Outcome], device: torch.device, said: _Said, *, golden: bool) -> _Said:
    results: list[int] = []
    wrong = False
    for _ in range(2):
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(_SEED)
            try:
                outcome = _tensors(run())
            except Exception:  # noqa: BLE001 - the other ranks wait for an answer, and a failure is one
                return replace(said, failed=1)
        results.append(digest(checksums(outcome).read()))
        wrong |= golden and any(bool(tensor.any()) for tensor in outcome)
    return replace(said, first=results[0], second=results[1], wrong=int(wrong))


def _golden(device: torch.device, ranks: tuple[int, int]) -> Callable[[], Outcome]:
    pair = dist.new_group(sorted(ranks), use_local_synchronization=True)
    assert isinstance(pair, dist.ProcessGroup)
    return lambda: [*golden_gemm(device), *golden_sum(device, pair)]


def _conclude(said: Mapping[int, _Said], missing: tuple[str, ...], *, golden: bool) -> tuple[Result, int | None, str]:
    """From the suspect's results and the peer's, in this order."""
    suspect, _ = said
    one, two = said.values()
    if failed := [rank for rank, word in said.items() if word.failed]:
        return Result.CANNOT_SAY, None, f"the run failed on {name_ranks(failed)}"
    if one.environment != two.environment:
        return Result.CANNOT_SAY, None, "the two ranks have different devices, settings, threads or versions of torch"
    if unsteady := [rank for rank, word in said.items() if word.first != word.second]:
        return _unsteady(unsteady, missing)
    if golden:
        return _known([rank for rank, word in said.items() if word.wrong])
    return _compared(suspect, missing, differ=one.first != two.first)


def _compared(suspect: int, missing: tuple[str, ...], *, differ: bool) -> tuple[Result, int | None, str]:
    if not differ:
        return (
            Result.SAME_EVERYWHERE,
            None,
            "four runs on two devices gave the same bits: look at data and optimisation",
        )
    if missing:
        return Result.CANNOT_SAY, None, f"results differ, which is possible without {', '.join(missing)}"
    return Result.PERSISTENT, suspect, "each rank repeats its own result, and this one was suspected before"


def _unsteady(ranks: list[int], missing: tuple[str, ...]) -> tuple[Result, int | None, str]:
    if missing:
        return Result.CANNOT_SAY, None, f"results do not repeat, which is possible without {', '.join(missing)}"
    if len(ranks) > 1:
        return Result.CANNOT_SAY, None, "no rank repeats its result: the run itself is not deterministic"
    return Result.TRANSIENT, ranks[0], f"rank {ranks[0]} gave two results for one run, the other rank did not"


def _known(wrong: list[int]) -> tuple[Result, int | None, str]:
    if not wrong:
        return (
            Result.SAME_EVERYWHERE,
            None,
            "four runs on two devices gave the known result: the fault did not recur",
        )
    if len(wrong) > 1:
        return Result.CANNOT_SAY, None, "both ranks miss the known result: something they share is wrong"
    return Result.PERSISTENT, wrong[0], f"rank {wrong[0]} misses a known result twice in the same way"


def _tensors(outcome: Outcome) -> list[Tensor]:
    if isinstance(outcome, Tensor):
        return [outcome]
    return [outcome[name] for name in sorted(outcome)] if isinstance(outcome, Mapping) else list(outcome)


def _default_device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _write(answer: Recheck, folder: str | None) -> None:
    fields: dict[str, object] = {
        "ranks": sorted((answer.suspect, answer.peer)),
        "suspect": answer.suspect,
        "result": answer.result,
        "deviates": answer.rank,
        "why": answer.why,
        "missing": answer.missing,
        "determinism": asdict(answer.determinism),
    }
    Journal(folder, dist.get_rank()).write("recheck", fields)
