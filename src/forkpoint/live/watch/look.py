"""One look: gather evidence, compare it with the look before, judge it if there is a reason to. `looks` repeats that."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from forkpoint.diverge.align import align
from forkpoint.errors import ForkpointError
from forkpoint.evidence import read
from forkpoint.live.stall import DEFAULT_STALL_S
from forkpoint.live.watch.rule import (
    Ground,
    GroupProgress,
    LoggedEnds,
    Movement,
    ProgressTracker,
    Sight,
    WatchNote,
    WatchState,
    find_ground,
    group_progress,
    incident_of,
    stands,
)
from forkpoint.live.watch.sources import Dump, Gathered, LiveSource, Spool
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import name_ranks, render_ranks
from forkpoint.pipeline import diagnose
from forkpoint.report.escape import ascii_json, escape, valid_text
from forkpoint.report.json_report import Json, render_json

# ---------------------------------------------------------------------------------------------------------------------
# One look.

_MAX_PROBLEMS = 5
_NO_MOVEMENT = Movement({}, frozenset(), is_pending=False, still_s=0.0)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    stall_s: float = DEFAULT_STALL_S
    world_size: int | None = None
    """None: as a source states it, if one does."""
    source: tuple[str, ...] = ()
    """The program that runs, for sites and fixes."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What all sources got in one look."""

    dumps: tuple[Dump, ...]
    stacks: tuple[str, ...]
    texts: tuple[str, ...]
    world_size: int | None
    has_grown: bool
    notes: tuple[WatchNote, ...]


@dataclass(frozen=True, slots=True)
class _Ops:
    """What the dumps of one look show."""

    step: Movement = _NO_MOVEMENT
    verdict: Verdict | None = None
    groups: tuple[GroupProgress, ...] = ()
    ranks: int = 0
    problems: tuple[WatchNote, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    capture: Capture
    verdict: Verdict


class JobWatch:
    def __init__(self, sources: Sequence[LiveSource], spool: Spool, settings: WatchSettings) -> None:
        self._sources, self._spool, self._settings = tuple(sources), spool, settings
        self._progress = ProgressTracker()
        self._ops = _Ops()
        self._dumps: tuple[Dump, ...] = ()
        self._logged = LoggedEnds()
        self._is_first = True
        self._is_still = False
        self._candidate: tuple[object, ...] | None = None
        self._judged: object = None
        self._found: Sight | None = None
        self._reported: set[tuple[object, ...]] = set()

    def look(self) -> Sight:
        evidence = self._gather()
        ops = self._read_ops(evidence)
        step = ops.step
        if step.moved:
            self._logged = LoggedEnds()  # the job has moved on since
        quiet = not evidence.has_grown and not self._is_first
        ground = find_ground(ops.verdict, step, self._logged, self._settings.stall_s, quiet=quiet)
        sight = self._describe(evidence, ops)
        self._is_first, self._is_still = False, not step.moved
        if ground is not None:
            return self._with_verdict(sight, ground, evidence, ops)
        self._candidate = self._judged = None
        if sight.state is WatchState.RUNNING:
            self._found = None
        if step.moved:
            self._reported.clear()  # growing logs alone prove nothing: other ranks may still report
        return self._still_found(sight)

    def _gather(self) -> _Evidence:
        got = [(source.name, self._gather_from(source)) for source in self._sources]
        self._logged = self._logged.with_events(event for _, gathered in got for event in gathered.said)
        return _Evidence(
            dumps=tuple(dump for _, gathered in got for dump in gathered.dumps),
            stacks=tuple(path for _, gathered in got for path in gathered.stacks),
            texts=tuple(path for _, gathered in got for path in gathered.texts),
            world_size=self._settings.world_size or next((g.world_size for _, g in got if g.world_size), None),
            has_grown=any(gathered.has_grown for _, gathered in got),
            notes=tuple(WatchNote(name, text) for name, gathered in got for text in gathered.notes),
        )

    def _gather_from(self, source: LiveSource) -> Gathered:
        try:
            return source.gather(self._spool, stacks=self._is_still)
        except OSError as error:  # out of disk space or descriptors here: the watch goes on
            return Gathered(notes=(f"{error.strerror or error} on this machine, in {self._spool.root}",))

    def _read_ops(self, evidence: _Evidence) -> _Ops:
        if not evidence.dumps:
            return _Ops()
        if evidence.dumps == self._dumps:  # files that nobody wrote to
            return replace(self._ops, step=replace(self._ops.step, moved=frozenset()))
        try:
            capture = read([dump.path for dump in evidence.dumps])
        except ForkpointError:
            return _Ops()
        timeline = align(capture)
        step = self._progress.step(capture.traces, evidence.dumps)
        unchanged = step.standings == self._ops.step.standings
        verdict = self._ops.verdict if unchanged else diagnose(capture)
        problems = tuple(WatchNote("read", f"{p.file}: {p.text}") for p in capture.problems[:_MAX_PROBLEMS])
        self._dumps = evidence.dumps
        self._ops = _Ops(step, verdict, group_progress(timeline), len(timeline.world), problems)
        return self._ops

    def _describe(self, evidence: _Evidence, ops: _Ops) -> Sight:
        """The sight without a verdict."""
        answering = len(ops.step.standings)
        state, why = (
            WatchState.WAITING,
            "no progress seen yet" if self._is_first else "no rank moved since the last look",
        )
        if ops.step.moved:
            state, why = WatchState.RUNNING, f"{name_ranks(ops.step.moved)} moved since the last look"
        elif not answering and evidence.has_grown and not self._is_first and not self._logged.ends:
            state, why = WatchState.RUNNING, "the logs grow"
        elif not answering and evidence.texts:
            why = "the logs do not grow, and logs alone do not show whether ranks move"
        elif not answering:
            reasons = "; ".join(f"{note.source}: {note.text}" for note in evidence.notes[:3])
            state, why = WatchState.BLIND, f"no op can be read: {reasons or 'the recorders are empty'}"
        expected = evidence.world_size or ops.ranks
        notes = (*evidence.notes, *ops.problems)
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Sight(at, state, why, expected, answering, ops.step.still_s, ops.groups, notes)

    def _still_found(self, sight: Sight) -> Sight:
        """What was found stays found until the job is seen to move: it may be gone by now."""
        if self._found is None:
            return sight
        known = self._found
        return replace(sight, state=WatchState.FOUND, why=known.why, verdict=known.verdict, evidence=known.evidence)

    def _with_verdict(self, sight: Sight, ground: Ground, evidence: _Evidence, ops: _Ops) -> Sight:
        state = (ground, ops.step.standings, evidence.texts, self._logged, len(evidence.stacks))
        if self._found is not None and state == self._judged:
            return self._still_found(sight)
        self._judged = state
        ranks = render_ranks(evidence.world_size, round(ops.step.still_s, 1), stalled=ground is Ground.STILL)
        copied = [*(dump.path for dump in evidence.dumps), *evidence.stacks]
        try:
            folder = self._spool.gather(copied, evidence.texts, ranks)
        except OSError as error:  # no space is left, or a file went away meanwhile
            note = WatchNote("spool", f"the evidence could not be copied ({error.strerror}); the next look tries again")
            return self._still_found(replace(sight, notes=(*sight.notes, note)))
        judged = self._judge(folder)
        incident = incident_of(judged.verdict) if judged and stands(ground, judged.verdict, judged.capture) else None
        is_confirmed, self._candidate = incident == self._candidate, incident
        known = self._found.verdict if self._found else None
        if incident is None or not is_confirmed or (known and incident_of(known) == incident):
            return self._still_found(sight)
        assert judged is not None  # or there would be no incident
        return self._find(sight, judged, incident)

    def _find(self, sight: Sight, judged: _Judged, incident: tuple[object, ...]) -> Sight:
        folder = self._spool.keep()
        # Judged again, so that the verdict cites the kept files. Logs may be gone by now.
        judged = self._judge(folder) or judged
        verdict = judged.verdict
        self._found = replace(sight, state=WatchState.FOUND, why=verdict.headline, verdict=verdict, evidence=folder)
        is_alarm = incident not in self._reported
        self._reported.add(incident)
        return replace(self._found, is_alarm=is_alarm, capture=judged.capture if is_alarm else None)

    def _judge(self, folder: str) -> _Judged | None:
        try:
            capture = read([folder], follow_links=True)  # the spool links the logs
        except ForkpointError:
            return None
        return _Judged(capture, diagnose(capture, self._settings.source))


# ---------------------------------------------------------------------------------------------------------------------
# Look after look.

EVERY_S = 5.0
"""A full answer costs a rank about 30 ms of one core: at this pace less than a hundredth of it."""
_SHARE = 10
"""Reading 10,000 dumps takes minutes of a core: this process gets no more than a tenth of it."""

_FEW = 3
"""The first has nothing to compare with; the second sees whether logs still grow; the third confirms the verdict."""


def looks(watch: JobWatch, every_s: float) -> Iterator[Sight]:
    """Endless."""
    while True:
        begun = time.process_time()
        yield watch.look()
        time.sleep(max(every_s, _SHARE * (time.process_time() - begun)))


def look_once(watch: JobWatch, every_s: float) -> Sight:
    """Takes a few looks: a single one cannot show movement, and a verdict must be the same in two."""
    sight = watch.look()
    for _ in range(_FEW - 1):
        if sight.is_alarm:
            break
        time.sleep(every_s)
        sight = watch.look()
    return sight


# ---------------------------------------------------------------------------------------------------------------------
# Sight -> a line, or a table that the terminal redraws.

_MAX_GROUPS = 12
_MAX_NOTES = 8
_STYLES = {
    WatchState.RUNNING: "green",
    WatchState.WAITING: "yellow",
    WatchState.BLIND: "magenta",
    WatchState.FOUND: "bold red",
}


def render_line(sight: Sight) -> str:
    """`01:18:27 running: rank 3 moved since the last look; 8 of 8 ranks answer`."""
    notes = "".join(f"; {note.source}: {note.text}" for note in sight.notes[:_MAX_NOTES])
    return escape(f"{_clock(sight)} {sight.state}: {sight.why.removesuffix('.')}; {_ranks(sight)}{notes}")


def draw(sight: Sight) -> Group:
    """Terminals redraw it in place."""
    head = Text.assemble(
        (sight.state, _STYLES[sight.state]),
        f"  {_ranks(sight)}, still for {sight.still_s:.0f} s  ({_clock(sight)} UTC)",
    )
    parts = [head, Text(escape(sight.why))]
    if sight.evidence:
        parts.append(Text(escape(f"forkpoint diagnose --follow-links {sight.evidence}"), style="bold"))
    notes = [Text(escape(f"{note.source}: {note.text}"), style="dim") for note in sight.notes[:_MAX_NOTES]]
    left = len(sight.notes) - _MAX_NOTES
    more = [Text(f"and {left} more notes", style="dim")] if left > 0 else []
    return Group(*parts, *([_draw_groups(sight.groups)] if sight.groups else []), *notes, *more)


def what_matters(sight: Sight) -> tuple[object, ...]:
    """Changes when there is something to report; progress alone is not."""
    why = sight.why if sight.state in (WatchState.FOUND, WatchState.BLIND) else ""
    return sight.state, why, sight.ranks_expected, sight.ranks_answering, sight.notes, sight.evidence


def _draw_groups(groups: tuple[GroupProgress, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("group", "ranks", "newest op", "behind"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for group in groups[:_MAX_GROUPS]:
        newest = f"{group.lowest}-{group.highest}" if group.behind else f"{group.highest}"
        table.add_row(escape(group.group), f"{group.ranks}", newest, f"{group.behind}")
    if len(groups) > _MAX_GROUPS:
        table.add_row(f"and {len(groups) - _MAX_GROUPS} more", "", "", "")
    return table


def _ranks(sight: Sight) -> str:
    return f"{sight.ranks_answering} of {sight.ranks_expected or 'an unknown number of'} ranks answer"


def _clock(sight: Sight) -> str:
    return sight.at[11:19]


# ---------------------------------------------------------------------------------------------------------------------
# Sight -> one line of JSON, schema `forkpoint.watch/1` (`watch.schema.json` beside this file).

SCHEMA = "forkpoint.watch/1"


def render_json_line(sight: Sight) -> str:
    """ASCII, without a final newline. The verdict is the document of `diagnose --json`."""
    document: dict[str, Json] = {
        "schema": SCHEMA,
        "at": sight.at,
        "state": sight.state,
        "why": valid_text(sight.why),
        "is_alarm": sight.is_alarm,
        "ranks": {"expected": sight.ranks_expected or None, "answering": sight.ranks_answering},
        "still_s": round(sight.still_s, 1),
        "groups": [{**asdict(group), "group": valid_text(group.group)} for group in sight.groups],
        "notes": [{"source": note.source, "text": valid_text(note.text)} for note in sight.notes],
        "evidence": sight.evidence,
        "verdict": json.loads(render_json(sight.verdict)) if sight.verdict else None,
    }
    return ascii_json(document)
