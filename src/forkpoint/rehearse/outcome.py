"""Judges a trial by how its ranks ended: agrees, parts or not reached; with the engine's verdict if ranks diverged."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forkpoint.live.children import Diagnosed, Task, diagnose
from forkpoint.model.world import KnownRank, name_ranks, render_ranks
from forkpoint.rehearse.model import Trial, TrialOutcome, TrialResult
from forkpoint.rehearse.run import Ended, is_stall, moved_again
from forkpoint.rehearse.workspace import Workspace

_OF_OTHERS: Final = re.compile(
    r"gloo/|Connection (?:closed|reset|refused)|Broken pipe|DistBackendError|DistNetworkError|DistStoreError|NCCL|"
    r"ncclRemoteError|TCPStore|Socket Timeout|store->get|Timed out waiting|op\.preamble|heartbeat|ranks are about to"
)
"""Errors caused by another rank: the connection is lost, it did not arrive, or it sent something else."""
_ERROR: Final = re.compile(
    r"^(?:\[rank\d+\]: ?)?((?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)|[a-z_]\w*\.[\w.]+)(?::.*)?)$"
)
_ABORTED: Final = (-6, -11)
_OF_CALLS: Final = ("divergent-path", "order-inversion", "metadata-mismatch")
_DIAGNOSE_S: Final = 300.0
"""Only against a real hang; a diagnosis takes a second or two."""
_TAIL: Final = 1 << 16


def judge_trial(trial: Trial, ended: Ended, place: Workspace) -> TrialResult:
    outcome, says = _decide(trial, ended, place.logs)
    suspicious = outcome is TrialOutcome.AGREES and _failed_without_it(trial, ended, place.logs)
    verdict = _verdict(ended, place) if suspicious or outcome is TrialOutcome.PARTS else None
    if suspicious and verdict is not None and not _accuses(verdict, trial.ranks):
        verdict = None
    if verdict is not None:
        if ended.effect is not None and verdict["cause"] in _OF_CALLS and not verdict["suspects"]:
            verdict = {**verdict, "suspects": [*trial.ranks]}  # without them, all ranks made the same calls
        outcome, says = TrialOutcome.PARTS, str(verdict["summary"])
    if outcome is TrialOutcome.AGREES and ended.effect is None:
        outcome, says = TrialOutcome.NOT_REACHED, "the job never reached the place: nothing was disturbed"
    return TrialResult(trial, outcome, says, ended.seconds, effect=ended.effect, verdict=verdict)


def _decide(trial: Trial, ended: Ended, logs: Path) -> tuple[TrialOutcome, str]:
    own = own_errors(ended, logs)
    if own and _was_clear(own, ended):
        return TrialOutcome.AGREES, _tell_stop(trial, own, ended)
    if ended.alarm is not None and ended.why == "alarm" and is_stall(ended.alarm) and moved_again(logs):
        return TrialOutcome.NOT_REACHED, "undecided: the ranks stalled for a while and then continued"
    if ended.alarm is not None and ended.why != "enough" and not _was_only_slow(ended.alarm, ended):
        return TrialOutcome.PARTS, "the ranks diverge"
    if any(ended.codes.values()):
        gone = [rank for rank in ended.order if ended.codes[rank] == 0]
        left = f"{name_ranks(tuple(sorted(gone)))} had ended normally" if gone else "they did different things"
        return TrialOutcome.PARTS, f"ranks lost each other: {left}"
    if ended.why == "limit":
        return TrialOutcome.NOT_REACHED, f"undecided: it was not done after {ended.seconds:.0f} s"
    end = " to the end" if ended.why == "all ended" else f", at least to step {min(ended.steps.values(), default=0)}"
    return TrialOutcome.AGREES, f"all ranks continued{end}"


def _failed_without_it(trial: Trial, ended: Ended, logs: Path) -> bool:
    """Others stopped with an error of their own, the disturbed rank did not. They may have received what was meant for another
    call, as when DDP compares models while the disturbed rank gathers something else; the recorded calls decide.
    """
    own = own_errors(ended, logs)
    return bool(own) and not set(own).intersection(trial.ranks)


def _accuses(verdict: Mapping[str, Any], ranks: Sequence[int]) -> bool:
    """These ranks made other calls than the others."""
    return verdict["cause"] in _OF_CALLS and verdict["suspects"] == [*ranks]


def _was_only_slow(alarm: Path, ended: Ended) -> bool:
    """Every rank ended with exit code 0, so the stall alarm came from a busy machine and not from a hang."""
    return ended.why == "all ended" and not any(ended.codes.values()) and is_stall(alarm)


def _tell_stop(trial: Trial, own: Mapping[int, str], ended: Ended) -> str:
    rank = trial.rank if trial.rank in own else next(iter(own))
    if 1 < len(own) == len(ended.steps):
        return f"all stopped with a clear error: {own[rank]}"
    return f"rank {rank} stopped with a clear error, which ends the job: {own[rank]}"


def _was_clear(own: Mapping[int, str], ended: Ended) -> bool:
    """The first rank that ended did so with its own error. The launcher ended the others, or they lost the connection."""
    failed = [rank for rank in ended.order if ended.codes[rank] != 0]
    left_before = bool(failed) and ended.order.index(failed[0]) > 0  # another rank had already ended normally
    return not left_before or set(own) >= set(failed)


# ---------------------------------------------------------------------------------------------------------------------
# What the logs say about the end of a rank.


def own_errors(ended: Ended, logs: Path) -> dict[int, str]:
    """Rank -> its error, for ranks that failed by themselves and not because of another; in the order in which they ended."""
    raised = {left.rank: last_error(left.error) or left.error.strip() for left in ended.left if left.error}
    found = {rank: error for rank, error in raised.items() if not _OF_OTHERS.search(error)}
    for rank in ended.order:
        if rank in raised:
            continue
        code = ended.codes[rank]
        if code == 0 or code in _ABORTED:
            continue
        text = _tail(logs / f"log_rank_{rank}.txt" if rank >= 0 else logs / "launcher.log")
        error = last_error(text)
        if error and not _OF_OTHERS.search(error):
            found[rank] = error
        elif not error:
            found[rank] = f"signal {-code}" if code < 0 else f"exit code {code}"
    return found


def last_error(text: str) -> str:
    """The last line of the last traceback; "" if there is none."""
    lines = text.splitlines()
    for at in range(len(lines) - 1, -1, -1):
        found = _ERROR.match(lines[at])
        if found:
            return found[1][:300]
    return ""


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def tell_errors(ended: Ended, logs: Path) -> str:
    found = own_errors(ended, logs)
    if found:
        rank, error = next(iter(found.items()))
        return f"rank {rank}: {error}" if rank >= 0 else error
    return f"exit codes {dict(ended.codes)}"


# ---------------------------------------------------------------------------------------------------------------------
# The engine's verdict: from the guard, or from the files that the ranks left.


def read_alarm(alarm: Path) -> dict[str, Any] | None:
    try:
        return json.loads((alarm / "verdict.json").read_text())
    except (OSError, ValueError):
        return None


def _verdict(ended: Ended, place: Workspace) -> dict[str, Any] | None:
    found = read_alarm(ended.alarm) if ended.alarm is not None else None
    if found is None:
        evidence = _complete(ended, place.told / "evidence")
        paths = (str(place.logs), *((str(evidence),) if evidence.is_dir() else ()))
        told = diagnose(Task(paths, (str(place.work),)), _DIAGNOSE_S)
        found = json.loads(told.document) if isinstance(told, Diagnosed) else None
    if found is None:
        return None
    # Paths are in the copy; show those of the original.
    return json.loads(json.dumps(found).replace(f"{place.work}/", ""))


def _complete(ended: Ended, evidence: Path) -> Path:
    """Adds to the dumps that ranks left how each rank ended."""
    if evidence.is_dir():
        errors = {left.rank: left.error for left in ended.left}
        ranks = [
            KnownRank(rank, "raised" if ended.codes[rank] else "finished", errors.get(rank, ""))
            for rank in ended.order
            if rank >= 0
        ]
        groups = sorted({group for left in ended.left for group in left.groups})
        told = render_ranks(max(len(ended.steps), len(ranks)), None, stalled=False, ranks=ranks, groups=groups)
        (evidence / "ranks.json").write_text(told)
    return evidence
