"""Ranks that gloo ended for a size, judged by which ranks were ended and what their neighbours were in. Each with a near miss."""

from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from texts import CLOSED, TORCH, Place, diagnose, raised, torchrun_table

TRAIN: Place = ("/job/train.py", 40, "step")
METER: Place = ("/job/train.py", 70, "report")


def ended(sent: int = 7528, expected: int = 8) -> str:
    return (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        f"  what():  [enforce fail at /__w/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. {sent} vs {expected}. "
        "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
    )


def in_backward(rank: int) -> str:
    """DDP's own all_reduce, in which the sizes are the model's."""
    lines = ["Traceback (most recent call last):"]
    frames = [("/job/train.py", 90, "<module>"), TRAIN, (f"{TORCH}/_tensor.py", 623, "backward")]
    for file, line, name in (*frames, (f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward")):
        lines += [f'  File "{file}", line {line}, in {name}', "    loss.backward()"]
    return "".join(f"[rank{rank}]: {line}\n" for line in (*lines, CLOSED))


PROGRAM = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader, model):
    model = DDP(model)
    for x in loader:
        model(x).sum().backward()
    total = torch.zeros(1)
    dist.all_reduce(total)
    MORE

main([], None)
"""


def judged(folder: Path, said: list[str], codes: dict[int, int], more: str = "pass") -> Verdict:
    """`more`: another line of the program."""
    (first, code), *rest = codes.items()
    given = folder / "given"
    given.mkdir(parents=True)
    (given / "console.log").write_text("".join(said) + torchrun_table((first, code), *rest))
    source = folder / "source"
    source.mkdir()
    (source / "other.py").write_text(PROGRAM.replace("MORE", more))
    return forkpoint.diagnose(forkpoint.read([str(given)]), source=[str(source)])


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


FIVE = {3: -6, 0: -15, 1: -15, 2: 1, 4: 1}
UNDECIDED = (Cause.INCONCLUSIVE, ())


def test_the_only_rank_that_was_ended_between_neighbours_in_backward_took_another_path(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [ended(), in_backward(2), in_backward(4)], FIVE)

    assert answer(verdict) == (Cause.DIVERGENT_PATH, (3,))
    assert "rank 3 got 7528 bytes where it expected 8" in verdict.summary.lower()


@for_each(
    ("what", "said", "codes"),
    [
        ("a neighbour is not seen", [ended(), in_backward(2), in_backward(1)], FIVE),
        ("another was ended as well", [ended(), in_backward(2), in_backward(4)], {**FIVE, 0: -6}),
        ("the others are in two calls", [ended(), in_backward(2), raised(4, CLOSED, METER)], FIVE),
        ("sizes of the program's own call", [ended(), raised(2, CLOSED, TRAIN), raised(4, CLOSED, TRAIN)], FIVE),
    ],
)  # fmt: skip
def test_nobody_is_named_where_others_may_be_like_the_rank_that_was_ended(
    tmp_path: Path, what: str, said: list[str], codes: dict[int, int]
) -> None:
    assert judged(tmp_path / what, said, codes).cause is Cause.INCONCLUSIVE


def test_a_rank_may_have_been_ended_in_a_call_that_the_others_had_passed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [ended(), in_backward(2), in_backward(4)], FIVE, "dist.broadcast(total, 0)")

    assert verdict.cause is Cause.INCONCLUSIVE


# ---------------------------------------------------------------------------------------------------------------------
# In an all_to_all, all but one were ended.


def in_all_to_all(rank: int) -> str:
    return raised(rank, CLOSED, TRAIN, call="all_to_all_single")


def of_experts(
    folder: Path, *, steps: dict[int, int] | None = None, sizes: tuple[int, ...] = (800, 800, 800)
) -> Verdict:
    """Rank 1 was not ended. `steps`: the last that a rank printed."""
    files = {
        f"attempt_0/{rank}/stderr.log": "".join(
            f"2026-11-19 23:42:0{step} rank {rank} step {step} loss 0.{rank}\n"
            for step in range((steps or {}).get(rank, 4))
        )
        + (in_all_to_all(1) if rank == 1 else ended(900, sizes[(0, 2, 3).index(rank)]))
        for rank in range(4)
    }
    return diagnose(folder, {**files, "launcher.log": torchrun_table((0, -6), (1, -15), (2, -6), (3, -6))})


def test_the_only_rank_that_was_not_ended_sends_more_than_all_others_expect(tmp_path: Path) -> None:
    assert answer(of_experts(tmp_path)) == (Cause.METADATA_MISMATCH, (1,))


@for_each(
    ("what", "given"),
    [
        ("it is a step behind", {"steps": {1: 3}}),
        ("they do not expect the same", {"sizes": (800, 700, 800)}),
    ],
)
def test_it_is_not_named_where_it_may_be_some_calls_off(tmp_path: Path, what: str, given: dict[str, object]) -> None:
    assert of_experts(tmp_path / what, **given).suspects == ()  # type: ignore[arg-type]
