"""What ranks show after a failure -> files -> the same reading and the same judgement as of any other job."""

from pathlib import Path

from forkpoint.controller.failure import CallFailure
from forkpoint.live.diagnosing import Diagnosed, Task, diagnose
from forkpoint.live.worker import read_verdict
from forkpoint.model.ranks_file import KnownRank, render_ranks
from forkpoint.model.verdict import Evidence, Verdict

FACTS = "controller.txt"


def diagnose_failure(failure: CallFailure, folder: Path) -> Verdict | None:
    """None: the ranks left nothing to read."""
    _write(failure, folder)
    found = diagnose(Task((str(folder),), with_value=True))
    return read_verdict(found.value) if isinstance(found, Diagnosed) and found.value else None


def cite_facts(failure: CallFailure, folder: Path) -> tuple[Evidence, ...]:
    """The controller's own words, written where a reader can open them."""
    path = folder / FACTS
    facts = failure.facts()
    path.write_text("".join(f"{failure.name}: {says}\n" for _, says in facts))
    return tuple(Evidence(str(path), rank, f"line {n}", says) for n, (rank, says) in enumerate(facts, 1))


def _write(failure: CallFailure, folder: Path) -> None:
    """A rank that raised has left the call: as after any exception, its log speaks for it, not its dump."""
    gone = {raised.rank for raised in failure.raised}
    for seen in failure.testimony:
        if seen.dump and seen.rank not in gone:
            (folder / f"trace_rank_{seen.rank}").write_bytes(seen.dump)
        if seen.stacks:
            (folder / f"stacks_rank_{seen.rank}.txt").write_text(seen.stacks)
    for raised in failure.raised:
        (folder / f"log_rank_{raised.rank}.txt").write_text(raised.traceback)
    (folder / "ranks.json").write_text(_describe(failure))


def _describe(failure: CallFailure) -> str:
    """What dumps do not say: whose process ended, who belongs to a group, and a hang."""
    lost = [failure.lost] if failure.lost else []
    return render_ranks(
        failure.size,
        failure.limit_s / 2 if failure.limit_s else None,
        stalled=failure.still,
        ranks=[KnownRank(death.rank, "gone", death.how.removeprefix("its process ")) for death in lost],
        groups=sorted({group for seen in failure.testimony for group in seen.groups}),
    )
