"""What recorded values show: replicas that were not equal, and which rank was out of line first before reduction."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from forkpoint.model.values import (
    FEWEST,
    NORM_FLOOR,
    TO_SIGMA,
    DesyncKind,
    ForensicsLog,
    K,
    ReplicaLog,
    ReportedMismatch,
    StepValues,
    Values,
    spread_of_losses,
)
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Replicas that were not equal: which rank differs from the rest, as far as a vote can tell.
#
# Each rank that took part writes the same result, so one file is enough and several must agree. The vote is counted
# here from the checksums; the result written in a file is not needed.

_FEWEST = 3
"""Of two replicas that differ, nothing shows which one is right."""


class Vote(Struct, frozen=True):
    """The first check in which replicas were not equal."""

    step: int
    mismatches: tuple[ReportedMismatch, ...]
    """One per value and group, by name."""
    odd: tuple[int, ...]
    """Ranks that differ from more than half of their replicas. Empty if there is no such majority, or if files
    disagree.
    """
    kind: DesyncKind
    equal_until: tuple[Evidence, int] | None
    """The last check before it in which all was equal, and its step."""
    disputed: bool
    """Files contradict each other about one check."""


def find_vote(values: Values) -> Vote | None:
    told = [m for log in values.replicas for m in log.mismatches]
    if not told:
        return None
    step = min(m.step for m in told)
    first = sorted((m for m in told if m.step == step), key=lambda m: (m.what, m.ranks, m.rank))
    by_value = {(m.what, m.ranks): m for m in reversed(first)}
    disputed = len({m.told for m in first}) > len(by_value) or _denied(step, first, values)
    mismatches = tuple(by_value[key] for key in sorted(by_value))
    odd = () if disputed else tuple(sorted({rank for m in mismatches for rank in _odd_replicas(m)}))
    return Vote(step, mismatches, odd, _kind(mismatches), _last_equal(step, mismatches, values), disputed)


def _odd_replicas(mismatch: ReportedMismatch) -> tuple[int, ...]:
    usual, count = Counter(mismatch.checksums).most_common(1)[0]
    if len(mismatch.ranks) < _FEWEST or 2 * count <= len(mismatch.ranks):
        return ()
    return tuple(r for r, sum_ in zip(mismatch.ranks, mismatch.checksums, strict=True) if sum_ != usual)


def cite_vote(vote: Vote, values: Values) -> tuple[Evidence, ...]:
    """What two ranks wrote about it, the odd one first, and the last check in which all was equal."""
    same = [m for log in values.replicas for m in log.mismatches if m.told == vote.mismatches[0].told]
    same.sort(key=lambda m: (m.rank not in vote.odd, m.rank))
    cited = [Evidence(m.file, m.rank, f"line {m.line}", _says(m)) for m in same[:2]]
    return (*cited, *([vote.equal_until[0]] if vote.equal_until else []))


def _says(mismatch: ReportedMismatch) -> str:
    sums = ", ".join(f"rank {r} {s}" for r, s in list(zip(mismatch.ranks, mismatch.checksums, strict=True))[:8])
    told = mismatch.why if mismatch.kind is DesyncKind.SOFTWARE else sums
    return f"step {mismatch.step}: {mismatch.what} is not equal on its replicas: {told}"


def _kind(mismatches: tuple[ReportedMismatch, ...]) -> DesyncKind:
    """One step that a rank skipped explains every tensor that differs."""
    kinds = {m.kind for m in mismatches}
    if DesyncKind.SOFTWARE in kinds:
        return DesyncKind.SOFTWARE
    return kinds.pop() if len(kinds) == 1 else DesyncKind.UNDECIDED


def _denied(step: int, mismatches: Sequence[ReportedMismatch], values: Values) -> bool:
    """A rank that is said to have taken part wrote that all was equal in that check."""
    return any(s == step for log in _logs_of(mismatches, values) for s, _ in log.equal)


def _last_equal(step: int, mismatches: Sequence[ReportedMismatch], values: Values) -> tuple[Evidence, int] | None:
    found = [(s, line, log) for log in _logs_of(mismatches, values) for s, line in log.equal if s < step]
    if not found:
        return None
    last, line, log = max(found, key=lambda item: (item[0], -item[2].rank))
    return Evidence(log.file, log.rank, f"line {line}", f"step {last}: all replicas were equal"), last


def _logs_of(mismatches: Sequence[ReportedMismatch], values: Values) -> list[ReplicaLog]:
    """Only of the ranks that hold these values: others may have been equal among themselves."""
    ranks = {rank for m in mismatches for rank in m.ranks}
    return [log for log in values.replicas if log.rank in ranks]


# ---------------------------------------------------------------------------------------------------------------------
# Who was out of line first, before gradients were reduced with those of other ranks: one rank, or all alike.
#
# A rank is out of line at a step if its loss or a layer's gradients are NaN, infinite, or above the limit derived from
# its own earlier steps (model/spread.py). Only the first such step of the job counts: one reduction later the others
# have it too.

_WINDOW = 200
"""Number of earlier steps that define what is usual."""
_STRIDE = 20
"""How often the limit is computed anew: every step would cost twenty times as much for nearly the same result."""
_LARGEST_LOG = 700.0
"""The largest logarithm for which such a number exists."""
_FAR = 100.0
"""A spike names a rank only if it exceeds every earlier value of any rank by this factor. Odd batches cause smaller
ones; so do many hardware errors, which cannot be told apart from them.
"""

Columns = npt.NDArray[np.float64]


class OutOfLine(Struct, frozen=True):
    """A rank at a step."""

    log: ForensicsLog
    values: StepValues
    says: str
    column: int | None
    """Where the spike is: 0 is the loss, then come the layer groups. None if something is NaN or infinite."""

    @property
    def rank(self) -> int:
        return self.log.rank


class FirstOutOfLine(Struct, frozen=True):
    """The first step at which any rank was out of line."""

    step: int
    out: tuple[OutOfLine, ...]
    """By rank."""
    in_line: tuple[int, ...]
    """Ranks that have a record of this step and are not out of line."""
    absent: tuple[int, ...]
    """Ranks of the job without a record of it."""
    is_far: bool
    """Always for NaN and infinity; for a spike only if no rank had anything like it before."""
    data_is_innocent: str | None
    """Why the batch is not the reason, if one rank alone is out of line and something shows that."""

    @property
    def named(self) -> int | None:
        """The one rank that is out of line, if all others have a record and are in line, and its data do not explain
        it.
        """
        alone = len(self.out) == 1 and not self.absent and len(self.in_line) > 1
        return self.out[0].rank if alone and self.is_far and self.data_is_innocent else None

    @property
    def alike(self) -> bool:
        """Most ranks are out of line at once, and every rank has a record."""
        return not self.absent and len(self.out) > len(self.in_line)


def find_first_out_of_line(values: Values) -> FirstOutOfLine | None:
    marked = {log.rank: _mark(log) for log in values.forensics if log.steps}
    firsts = [rows[0].values.step for rows in marked.values() if rows]
    if not firsts:
        return None
    step = min(firsts)
    out = tuple(rows[0] for _, rows in sorted(marked.items()) if rows and rows[0].values.step == step)
    recorded = {log.rank for log in values.forensics if any(s.step == step for s in log.steps)}
    ranks = range(values.world) if values.world is not None else sorted(recorded)
    return FirstOutOfLine(
        step=step,
        out=out,
        in_line=tuple(sorted(recorded - {o.rank for o in out})),
        absent=tuple(rank for rank in ranks if rank not in recorded),
        is_far=_is_far(out[0], values),
        data_is_innocent=_acquit_data(out[0], marked, values) if len(out) == 1 else None,
    )


def cite_out_of_line(found: FirstOutOfLine, values: Values) -> tuple[Evidence, ...]:
    """The ranks that are out of line, and one that is not."""
    at = f"step {found.step}"
    cited = [Evidence(o.log.file, o.rank, f"line {o.values.line}", f"{at}: {o.says}") for o in found.out[:3]]
    witness = next((log for log in values.forensics if log.rank in found.in_line), None)
    if witness is not None:
        record = next(s for s in witness.steps if s.step == found.step)
        says = f"{at}: in line with its own steps before"
        cited.append(Evidence(witness.file, witness.rank, f"line {record.line}", says))
    return tuple(cited)


def describe_out_of_line(found: FirstOutOfLine) -> str:
    first = found.out[0]
    who = f"{name_ranks(o.rank for o in found.out)} {'was' if len(found.out) == 1 else 'were'}"
    tensor = first.values.first_nonfinite
    where = f", first in {tensor}" if tensor else ""
    return f"before reduction {who} abnormal at step {found.step}: {first.says}{where}"


def _mark(log: ForensicsLog) -> list[OutOfLine]:
    """The steps at which this rank is out of line, in order."""
    table = np.array([[_known(s.loss), *map(_known, s.norms)] for s in log.steps], dtype=np.float64)
    broken = np.array([[s.broken_loss, *map(_is_broken, s.norms, s.nonfinite)] for s in log.steps], dtype=bool)
    limits = _limits(table)
    above = np.nan_to_num(table) > limits
    rows = np.flatnonzero((above | broken).any(axis=1))
    return [
        _name_broken(log, log.steps[row]) if broken[row].any() else _name_spike(log, log.steps[row], limits[row])
        for row in rows
    ]


def _name_spike(log: ForensicsLog, values: StepValues, limits: Columns) -> OutOfLine:
    """The norm that is farthest above its limit; the loss only if nothing else is out of line."""
    times = [_known(norm) / limit for norm, limit in zip(values.norms, limits[1:], strict=True)]
    worst = max(range(len(times)), key=times.__getitem__, default=0)
    column = worst + 1 if times and times[worst] > 1 else 0
    what = f"the gradient norm of {log.groups[worst]}" if column else "its loss"
    says = f"{what} is {_value(values, column):.4g}, and its steps before give a limit of {limits[column]:.4g}"
    return OutOfLine(log, values, says, column)


def _name_broken(log: ForensicsLog, values: StepValues) -> OutOfLine:
    count = sum(values.nonfinite)
    elements = "1 element of its gradients is" if count == 1 else f"{count} elements of its gradients are"
    other = "its loss is" if values.broken_loss else "the norm of its gradients is"
    return OutOfLine(log, values, f"{elements if count else other} NaN or infinite", None)


def _value(values: StepValues, column: int) -> float:
    return _known(values.loss if column == 0 else values.norms[column - 1])


def _is_far(first: OutOfLine, values: Values) -> bool:
    if first.column is None:
        return True
    before = [
        _value(step, first.column)
        for log in values.forensics
        if log.groups == first.log.groups
        for step in log.steps
        if step.step < first.values.step or (step.step == first.values.step and log.rank != first.rank)
    ]
    known = [abs(value) for value in before if np.isfinite(value)]
    return _value(first.values, first.column) > _FAR * max(known, default=np.inf)


def _limits(table: Columns) -> Columns:
    """The limit of each value, computed from the steps before it as in model/spread.py; infinite if there are too few."""
    limits = np.full(table.shape, np.inf)
    logs = np.log(np.where(table[:, 1:] > 0, table[:, 1:], np.nan))
    for start in range(FEWEST, len(table), _STRIDE):
        before, here = slice(max(0, start - _WINDOW), start), slice(start, start + _STRIDE)
        losses = spread_of_losses(table[before, 0].tolist())
        limits[here, 0] = losses.limit if losses else np.inf
        enough = np.isfinite(logs[before]).sum(axis=0) >= FEWEST
        limits[here, 1:][:, enough] = _limits_of_norms(logs[before, enough])
    return limits


def _limits_of_norms(logs: Columns) -> npt.NDArray[np.float64]:
    """`spread_of_norms` of each column at once."""
    middle = np.nanmedian(logs, axis=0)
    deviation = TO_SIGMA * np.nanmedian(np.abs(logs - middle), axis=0)
    return np.exp(np.minimum(middle + K * np.maximum(deviation, NORM_FLOOR), _LARGEST_LOG))


def _known(value: float | None) -> float:
    return np.nan if value is None else value


def _is_broken(norm: float | None, nonfinite: int) -> bool:
    return norm is None or nonfinite > 0


def _acquit_data(first: OutOfLine, marked: dict[int, list[OutOfLine]], values: Values) -> str | None:
    """Each of its samples was elsewhere in a batch that was in line. Several odd batches do not acquit them: a rank's
    whole share of the data can be broken.
    """
    left = set(first.values.data)
    if not left or not first.values.data_is_whole:
        return None
    for log in values.forensics:
        odd = {o.values.step for o in marked.get(log.rank, [])}
        for step in log.steps:
            if step.step not in odd:
                left.difference_update(step.data)
    return None if left else "each sample of its batch was also in a batch that was in line"


def what_to_recheck(first: FirstOutOfLine) -> str:
    """The smallest step that shows whether the GPU or the data is to blame."""
    if first.absent:
        return f"the forensics files of {name_ranks(first.absent)}: forkpoint diagnose DIR"
    if first.alike:
        return f"look at the batches of step {first.step} and the learning rate there"
    data = first.out[0].values.data
    batch = f" (samples {', '.join(map(str, data[:8]))}{', ...' if len(data) > 8 else ''})" if data else ""
    return f"run the batch of that step{batch} on another rank: replicas.recheck()"
