"""Records one fault, scores verdicts against the truth, and prints the lab's tables and JSON (schema forkpoint.lab/1)."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import fill

from forkpoint.errors import UsageError
from forkpoint.lab.fault import CaseFolder, Fault, Truth, patch, write_case
from forkpoint.lab.ranks import DUMP_PREFIX, Backend, JobPlan, LabSettings, run_ranks
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.model.world import format_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Which torch is installed: asked in a child process, so that this one does not import it.

_ASK = """
import torch, torch.distributed as dist
print(torch.__version__, dist.is_nccl_available() and torch.cuda.is_available())
"""
_TIMEOUT_S = 120  # a cold file system takes long to import torch from


@dataclass(frozen=True, slots=True)
class TorchHere:
    version: str
    nccl: bool
    """A build with NCCL, and a GPU to use it on."""

    @property
    def backend(self) -> Backend:
        return "nccl" if self.nccl else "gloo"


def find_torch(python: str = sys.executable) -> TorchHere:
    """Raises UsageError if there is none."""
    asked = subprocess.run(  # noqa: S603 - our own Python on our own text
        [python, "-c", _ASK], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    if asked.returncode:
        why = asked.stderr.strip().rpartition("\n")[2]
        raise UsageError(
            f"the lab runs real jobs and needs torch, which {python} cannot import ({why}): pip install torch"
        )
    version, nccl = asked.stdout.split()
    return TorchHere(version, nccl == "True")


# ---------------------------------------------------------------------------------------------------------------------
# One fault from start to end: patch the job, run it, keep what a person would collect, with the truth beside it.

__all__ = ["LabSettings", "RecordedFault", "record"]


@dataclass(frozen=True, slots=True)
class RecordedFault:
    fault: Fault
    folder: Path
    """capture/, source/ and case.toml."""
    seconds: float
    exits: Mapping[int, int]
    """Rank -> exit code, negative for a signal. Ranks that still ran were killed (-9)."""

    @property
    def capture(self) -> Path:
        return self.folder / "capture"

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def dumps(self) -> int:
        return len(list(self.capture.glob(DUMP_PREFIX + "*")))

    def log(self, rank: int) -> str:
        return (self.capture / f"log_rank_{rank}.txt").read_text(errors="replace")


def record(fault: Fault, settings: LabSettings) -> RecordedFault:
    """Records into settings.out/NAME. No process is left, however it ends."""
    folder = settings.out.absolute() / fault.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    patched = patch(fault)
    (folder / "source" / "train.py").write_text(patched.text)
    world = settings.world or fault.job.world
    write_case(folder, fault, patched, settings.backend, world)
    plan = JobPlan(
        name=fault.name,
        source=folder / "source",
        world=world,
        env=fault.env,
        signals=fault.signals,
        absent=fault.absent,
        dump_at_end=fault.ends,
    )
    ended = run_ranks(plan, settings, folder / "capture")
    return RecordedFault(fault, folder, ended.seconds, ended.exits)


# ---------------------------------------------------------------------------------------------------------------------
# How verdicts compare with the truth: case by case, and over all of them.

RIGHT_ENOUGH = 0.9
"""The share of right verdicts that the project promises for the lab."""


class Mark(StrEnum):
    RIGHT = "right"
    """Cause and suspects are among the answers of the truth."""
    UNNAMED = "unnamed"
    """The cause is right, but not all ranks that could be named are named."""
    INCONCLUSIVE = "inconclusive"
    """The verdict does not decide, although the evidence allows it."""
    WRONG = "wrong"
    ACCUSED = "accused"
    """A rank is named that no answer of the truth names. The worst mark, whatever the cause."""


@dataclass(frozen=True, slots=True)
class Scored:
    name: str
    truth: Truth
    verdict: Verdict
    mark: Mark


@dataclass(frozen=True, slots=True)
class Score:
    cases: tuple[Scored, ...]

    @property
    def counts(self) -> dict[Mark, int]:
        found = Counter(case.mark for case in self.cases)
        return {mark: found[mark] for mark in Mark}

    @property
    def is_good(self) -> bool:
        """No innocent rank accused, and nearly all right."""
        counts = self.counts
        return not counts[Mark.ACCUSED] and counts[Mark.RIGHT] >= RIGHT_ENOUGH * len(self.cases)

    @property
    def confusion(self) -> dict[tuple[Cause, Cause], int]:
        """(best cause of the truth, cause of the verdict) -> cases."""
        return dict(Counter((case.truth.cause[0], case.verdict.cause) for case in self.cases))


def score(verdicts: Iterable[tuple[CaseFolder, Verdict]]) -> Score:
    return Score(tuple(Scored(c.name, c.truth, v, mark(c.truth, v)) for c, v in verdicts))


def mark(truth: Truth, verdict: Verdict) -> Mark:
    guilty = {rank for answer in truth.suspects for rank in answer}
    if set(verdict.suspects) - guilty:
        return Mark.ACCUSED
    if verdict.cause in truth.cause:
        return Mark.RIGHT if verdict.suspects in truth.suspects else Mark.UNNAMED
    return Mark.INCONCLUSIVE if verdict.cause is Cause.INCONCLUSIVE else Mark.WRONG


# ---------------------------------------------------------------------------------------------------------------------
# The lab's tables and its JSON (schema forkpoint.lab/1).

LAB_SCHEMA = "forkpoint.lab/1"

_WORDS = {
    Mark.RIGHT: "The verdict is right.",
    Mark.UNNAMED: "The cause is right; not all ranks that could be named are named.",
    Mark.INCONCLUSIVE: "The verdict does not decide, although the evidence allows it.",
    Mark.WRONG: "The verdict is wrong.",
    Mark.ACCUSED: "The verdict is wrong: it accuses an innocent rank.",
}


def list_text(faults: Sequence[Fault]) -> str:
    rows = [(f.name, f.job.name, f.truth.cause[0], "/".join(f.backends), f.title) for f in faults]
    return _table([("name", "job", "cause", "backends", "what is broken"), *rows])


def list_json(faults: Sequence[Fault]) -> str:
    listed = [
        {
            "name": f.name,
            "job": f.job.name,
            "title": f.title,
            "cause": f.truth.cause[0],
            "ranks": f.job.world,
            "backends": f.backends,
        }
        for f in faults
    ]
    return json.dumps({"schema": LAB_SCHEMA, "faults": listed}, indent=2)


def truth_text(case: Scored, width: int) -> str:
    """What was really broken, and whether the verdict says so."""
    truth = case.truth
    allowed = " or ".join(truth.cause)
    who = " or ".join(format_ranks(answer) or "nobody" for answer in truth.suspects)
    told = [f"really broken: {truth.story}", f"truth: {allowed}; ranks: {who}. {_WORDS[case.mark]}"]
    return "\n".join(fill(line, width) for line in told)


def score_text(score: Score) -> str:
    rows = [
        (case.name, " or ".join(case.truth.cause), case.verdict.cause, _who(case), case.mark) for case in score.cases
    ]
    counts = ", ".join(f"{count} {mark}" for mark, count in score.counts.items())
    return "\n".join(
        [
            _table([("fault", "truth", "said", "ranks", "mark"), *rows]),
            "",
            "rows: the best cause of the truth; columns: what was said",
            _confusion(score),
            "",
            f"{len(score.cases)} cases: {counts}",
        ]
    )


def score_json(score: Score) -> str:
    cases = [
        {
            "name": case.name,
            "mark": case.mark,
            "truth": asdict(case.truth),
            "cause": case.verdict.cause,
            "suspects": case.verdict.suspects,
            "confidence": case.verdict.confidence,
            "headline": case.verdict.headline,
            "summary": case.verdict.summary,
        }
        for case in score.cases
    ]
    confusion = [{"truth": t, "said": s, "cases": n} for (t, s), n in sorted(score.confusion.items())]
    told = {"schema": LAB_SCHEMA, "cases": cases, "counts": score.counts, "confusion": confusion, "good": score.is_good}
    return json.dumps(told, indent=2)


def _who(case: Scored) -> str:
    return format_ranks(case.verdict.suspects) or "-"


def _confusion(score: Score) -> str:
    counts = score.confusion
    rows = [cause for cause in Cause if any(truth == cause for truth, _ in counts)]
    columns = [cause for cause in Cause if any(said == cause for _, said in counts)]
    lines = [(row, *(str(counts.get((row, column), "")) for column in columns)) for row in rows]
    return _table([("", *columns), *lines])


def _table(rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as needed; the last one is not padded."""
    lines = [tuple(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
