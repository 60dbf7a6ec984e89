"""Capture -> a trace for ui.perfetto.dev: a process per rank, a track per group and channel, a slice per recorded op. It
reads the dumps again.
"""

import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, count, islice
from pathlib import Path
from typing import cast

from msgspec import Struct, field

from forkpoint import __version__
from forkpoint.errors import InputError
from forkpoint.evidence import Progress
from forkpoint.evidence.file_names import claim_rank
from forkpoint.evidence.files import SNIFF, STDIN, find_files, is_archive, open_file, shown
from forkpoint.model.capture import Capture
from forkpoint.model.frames import user_frames
from forkpoint.model.incident import Divergence
from forkpoint.model.op import Op, OpState, Stack
from forkpoint.model.trace import RankTrace
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import format_ranks
from forkpoint.report.escape import ascii_json, escape
from forkpoint.traces import dump
from forkpoint.traces.columns import DumpColumns
from forkpoint.traces.summary import HeldTrack, held_tracks

# ---------------------------------------------------------------------------------------------------------------------
# Reads the dumps of a capture again, for exports: a capture keeps only what the stages need.


_CPU_S = 18
"""CPU time of the whole diagnosis within which dumps are read again; more for evidence larger than `_LARGE` bytes."""
_LARGE, _PER_SECOND = 64 << 20, 1 << 20
_READ_PER_SECOND = 3 << 19
"""Bytes of a dump that are decoded and written as a trace in a second. The compiled decoder does not keep single calls."""


class DumpsAgain:
    """The dumps of a capture, one at a time. Those that cannot be read again (a pipe, a deleted or changed file) are skipped."""

    def __init__(
        self,
        paths: Sequence[str],
        capture: Capture,
        progress: Progress | None = None,
        *,
        follow_links: bool = False,
        limited: bool = True,
        since_s: float | None = None,
    ) -> None:
        """`limited`: leave out dumps that would take too long. `since_s`: `cpu_s()` when the diagnosis began, if it was before."""
        files = find_files([path for path in paths if path != STDIN], follow_links=follow_links)
        self._roots = () if follow_links else tuple(paths)
        self._progress = progress
        self._wanted: dict[str, RankTrace] = {trace.file: trace for trace in capture.traces}
        own = [path for path in files if shown(path) in self._wanted]
        self._files = own if len(own) == len(self._wanted) else files  # some are in archives
        beyond = sum(map(_size, self._files)) - _LARGE if limited else math.inf
        self._until_s = (cpu_s() if since_s is None else since_s) + _CPU_S + max(0, beyond) / _PER_SECOND
        self.left_out: list[int] = []
        """Ranks whose dumps would have taken too long."""

    def __iter__(self) -> Iterator[tuple[RankTrace, DumpColumns]]:
        for done, path in enumerate(self._files):
            if self._progress:
                self._progress(done, len(self._files), shown(path))
            for name, data in self._dumps_in(path):
                trace = self._wanted.pop(name)
                if cpu_s() + len(data) / _READ_PER_SECOND > self._until_s:
                    self.left_out.append(trace.rank)
                    continue
                columns = _decode(data, name)
                if columns and len(columns.group) == trace.entries and claim_rank(columns, name).rank == trace.rank:
                    yield trace, columns

    def _dumps_in(self, path: str) -> Iterator[tuple[str, bytes]]:
        """(name, content) of wanted dumps."""
        try:
            with open_file(path, self._roots) as stream:
                if (name := shown(path)) in self._wanted:
                    yield name, stream.read(dump.MAX_BYTES + 1)
                elif is_archive(stream.peek(SNIFF)):
                    yield from self._dumps_in_archive(stream, name)
        except OSError:
            return

    def _dumps_in_archive(self, stream: "io.BufferedReader[io.FileIO]", path: str) -> Iterator[tuple[str, bytes]]:
        """An archive is not unpacked again beyond the last dump that is wanted."""
        from forkpoint.evidence.archives import ArchiveMember, name_inside, open_members  # noqa: PLC0415 - slow to import

        inside = {name for name in self._wanted if name.startswith(name_inside(path))}
        for member in open_members(stream, path) if inside else ():
            if isinstance(member, ArchiveMember) and member.name in inside:
                inside.remove(member.name)
                yield member.name, io.BufferedReader(cast("io.FileIO", member.stream), SNIFF).read(dump.MAX_BYTES + 1)
                if not inside:
                    return


def cpu_s() -> float:
    """What this process and its children have used."""
    return sum(os.times()[:4])


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # a URL
        return 0


def _decode(data: bytes, name: str) -> DumpColumns | None:
    try:
        return dump.decode(data, name)
    except InputError:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Which slots get arrows between ranks: those around the divergences.

MAX_SLOTS = 200
"""More arrows would hide what they should show."""

Ends = tuple[int, int] | None


class ArrowSlots:
    """The chosen slots, by number. A slot belongs to a channel of a group, or to a group's collectives."""

    def __init__(self, verdict: Verdict) -> None:
        found = [verdict.divergence, *(finding.divergence for finding in verdict.findings)]
        self._partings = tuple(dict.fromkeys(d for d in found if d is not None and _middle(d) is not None))
        chosen = islice(self._nearest_first(), MAX_SLOTS)
        self._numbers = {slot: number for number, slot in enumerate(dict.fromkeys(chosen), 1)}

    def number(self, name: str, members: tuple[int, ...] | None, channel: Ends, seq: int) -> int | None:
        """None: no arrows here. If a dump does not state a group's members, the name is enough."""
        for place, parting in enumerate(self._partings):
            group = parting.group
            same = group.name == name and parting.channel == channel and members in {None, group.ranks}
            if same and (place, seq) in self._numbers:
                return self._numbers[place, seq]
        return None

    def _nearest_first(self) -> Iterator[tuple[int, int]]:
        """(index of the divergence, seq), from the middle outwards."""
        if not self._partings:
            return
        for distance in count():
            for place, parting in enumerate(self._partings):
                middle = _middle(parting)
                assert middle is not None  # others are left out above
                yield place, middle + distance
                if 0 < distance <= middle:
                    yield place, middle - distance


def _middle(parting: Divergence) -> int | None:
    seqs = (parting.seq, parting.first_visible_seq, parting.hang_seq)
    return next((seq for seq in seqs if seq is not None), None)


# ---------------------------------------------------------------------------------------------------------------------
# Capture -> a trace that ui.perfetto.dev and chrome://tracing open, with arrows through the slots around divergences.
#
# A recorder knows when an op was issued and when its end was noticed, which is often long after the next op was issued; but
# slices of one track must not overlap. So a slice begins when its op was issued, and ends no later than the next one
# begins; its arguments have the recorded times. An op that never ended stays open.

MAX_SLICES = 200_000
"""About 150 MB, which the viewer can still open in a browser."""

_MAX_FRAMES = 4
_MAX_SIZES = 2
_MAX_CHARS = 200
_OPEN_PART = 0.1
_OPEN_US = 1000.0
"""How far an open slice extends beyond the last op: this part of the whole time, and at least this much."""
_NS_PER_US = 1000
_NS_PER_S = 1_000_000_000
_LAST_SECOND = 253_402_300_799
"""Of the year 9999: `datetime` goes no further, and a file may claim any time."""
_ENDED = frozenset({OpState.COMPLETED, OpState.ABORTED})

Json = str | int | float | None | list["Json"] | dict[str, "Json"]
Event = dict[str, Json]


class _Export(Struct):
    """The state while events are written."""

    zero_ns: int
    slots: ArrowSlots
    newest: int
    """Number of entries per rank that are shown."""
    spare_pid: int
    """The first number that is not a rank. Tracks are numbered after it: a viewer takes a track with the number of its
    process for the main thread."""
    tracks: int = 0
    slices: int = 0
    first: float = math.inf
    last: float = 0.0
    """Begin of the first and of the last slice."""
    ranks: set[int] = field(default_factory=set)
    arrows: dict[int, list[tuple[float, int, int]]] = field(default_factory=dict)
    """Slot number -> (time, process, track) of each rank's op."""

    def us(self, ns: int) -> float:
        return round((ns - self.zero_ns) / _NS_PER_US, 3)


def export_perfetto(
    capture: Capture, verdict: Verdict, dumps: Iterable[tuple[RankTrace, DumpColumns]]
) -> Iterator[str]:
    """The document in pieces, with one dump in memory at a time. All ASCII; strings from input are escaped."""
    newest = entries_per_rank([trace.entries for trace in capture.traces], MAX_SLICES)
    begun = [trace.first_ns for trace in capture.traces if trace.first_ns > 0]
    last_rank = max((trace.rank for trace in capture.traces), default=0)
    export = _Export(min(begun, default=0), ArrowSlots(verdict), newest, spare_pid=last_rank + 1)
    yield '{"displayTimeUnit": "ms", "traceEvents": ['
    before = "\n"
    for event in chain(_events(capture, verdict, dumps, export), _arrows(export), _end(export)):
        yield f"{before}{ascii_json(event)}"
        before = ",\n"
    yield f'\n],\n"otherData": {ascii_json(_about(capture, verdict, export))}}}\n'


def _events(
    capture: Capture, verdict: Verdict, dumps: Iterable[tuple[RankTrace, DumpColumns]], export: _Export
) -> Iterator[Event]:
    hosts = {place.rank: place.host for place in capture.places}
    for trace, columns in dumps:
        export.ranks.add(trace.rank)
        suspect = trace.rank in verdict.suspects
        yield from _process(trace, hosts.get(trace.rank), export.newest, suspect=suspect)
        for track in held_tracks(columns, trace.rank, export.newest):
            yield from _track(track, trace.rank, export)


def entries_per_rank(held: Sequence[int], budget: int) -> int:
    """How many of its newest entries each rank may show, so that the total stays within the budget."""
    left, ranks = budget, len(held)
    for entries in sorted(held):
        if entries * ranks > left:
            return left // ranks
        left, ranks = left - entries, ranks - 1
    return max(held, default=0)


def _process(trace: RankTrace, host: str | None, newest: int, *, suspect: bool) -> Iterator[Event]:
    pid = trace.rank
    name = f"rank {trace.rank}{' (suspect)' if suspect else ''}{f' on {_text(host)}' if host else ''}"
    yield _named("process_name", pid, name=name)
    yield _named("process_sort_index", pid, sort_index=trace.rank)
    older = trace.entries - newest
    if older > 0:
        yield _named("process_labels", pid, labels=f"{older} older entries left out")


def _track(track: HeldTrack, rank: int, export: _Export) -> Iterator[Event]:
    pid, tid = rank, export.spare_pid + 1 + export.tracks
    export.tracks += 1
    ends = f" {track.channel[0]} -> {track.channel[1]}" if track.channel else ""
    yield {**_named("thread_name", pid, name=f"{_text(track.desc)} (group {_text(track.name)}){ends}"), "tid": tid}
    yield {**_named("thread_sort_index", pid, sort_index=export.tracks), "tid": tid}
    starts = _starts(track, export.zero_ns)
    for (op, started_ns), start, following in zip(track.ops, starts, [*starts[1:], None], strict=True):
        begin = export.us(start)
        export.slices, export.first, export.last = export.slices + 1, min(export.first, begin), max(export.last, begin)
        place: Event = {"pid": pid, "tid": tid, "ts": begin}
        kind = "p2p" if track.channel else "collective"
        yield {**place, **_span(op, start, following), **_label(op, kind), "args": _arguments(op, started_ns, export)}
        slot = export.slots.number(track.name, track.members, track.channel, op.seq)
        if track.counted and slot is not None:
            export.arrows.setdefault(slot, []).append((begin, pid, tid))


def _starts(track: HeldTrack, zero_ns: int) -> list[int]:
    """When each op was issued; never earlier than the one before it, even if the clock went back."""
    starts: list[int] = []
    latest = zero_ns
    for op, _ in track.ops:
        latest = max(latest, op.created_ns)
        starts.append(latest)
    return starts


def _span(op: Op, start: int, following: int | None) -> Event:
    """The length of the slice. The last op of a track stays open if it never ended."""
    if following is None and op.state not in _ENDED:
        return {"ph": "B"}
    ended = op.completed_ns if op.state in _ENDED and op.completed_ns else following or start
    end = ended if following is None else min(ended, following)
    return {"ph": "X", "dur": round(max(end - start, 0) / _NS_PER_US, 3)}


def _label(op: Op, kind: str) -> Event:
    signature = op.signatures[0]
    more = f" and {len(op.signatures) - 1} more" if len(op.signatures) > 1 else ""
    hidden = len(signature.input_sizes) - _MAX_SIZES
    sizes = [str(list(size)) for size in signature.input_sizes[:_MAX_SIZES]] + ([f"+{hidden}"] if hidden > 0 else [])
    name = _text(" ".join([signature.op, *sizes]) + more)
    if op.state is OpState.COMPLETED:
        return {"name": name, "cat": kind}
    return {"name": f"{name} ({op.state})", "cat": f"{kind},unfinished", "cname": "terrible"}


def _arguments(op: Op, started_ns: int, export: _Export) -> Json:
    signature = op.signatures[0]
    known: dict[str, Json] = {
        "seq": op.seq,
        "state": op.state,
        "entry": op.record_id,
        "dtypes": _text(", ".join(sorted(set(signature.input_dtypes))[:_MAX_SIZES])),
        "output_sizes": _text(str([list(size) for size in signature.output_sizes[:_MAX_SIZES]])),
        "issued_us": export.us(op.created_ns) if op.created_ns else None,
        "started_us": export.us(started_ns) if started_ns else None,
        "end_noticed_us": export.us(op.completed_ns) if op.completed_ns else None,
        "timeout_ms": op.timeout_ms or None,
        "thread": _text(op.thread),
        "frames": _frames(op.stack),
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


@lru_cache(maxsize=512)  # ranks share call sites, and classifying frames is the slowest part
def _frames(stack: Stack | None) -> Json:
    """The innermost frames of user code; without any, the innermost frame."""
    shown = user_frames(stack)[:_MAX_FRAMES] or (stack or ())[:1]
    return [_text(f"{frame.filename[-120:]}:{frame.line} {frame.name}") for frame in shown] or None


def _arrows(export: _Export) -> Iterator[Event]:
    """From the first rank to the last one in time: viewers drop arrows that go back in time."""
    for slot, points in export.arrows.items():
        ordered = sorted(points)
        phases = ["s", *["t"] * (len(ordered) - 2), "f"] if len(ordered) > 1 else []
        for phase, (ts, pid, tid) in zip(phases, ordered, strict=False):
            event: Event = {"ph": phase, "id": slot, "name": "slot", "cat": "slot", "pid": pid, "tid": tid, "ts": ts}
            yield {**event, "bp": "e"} if phase == "f" else event


def _end(export: _Export) -> Iterator[Event]:
    """An extra event at the end: viewers draw open slices up to the last event, so an op at the very end would be invisible."""
    if export.slices:
        ts = round(export.last + max((export.last - export.first) * _OPEN_PART, _OPEN_US), 3)
        name = "unfinished ops are drawn to here: when they ended is not known"
        place: Event = {"pid": export.spare_pid, "tid": export.spare_pid}
        yield _named("process_name", export.spare_pid, name="end of the evidence")
        yield _named("process_sort_index", export.spare_pid, sort_index=export.spare_pid)
        yield {"ph": "i", "s": "t", "name": name, "cat": "end", **place, "ts": ts}


def _about(capture: Capture, verdict: Verdict, export: _Export) -> Event:
    missing = [trace.rank for trace in capture.traces if trace.rank not in export.ranks]
    older = sum(trace.entries > export.newest for trace in capture.traces)
    second = min(max(export.zero_ns // _NS_PER_S, 0), _LAST_SECOND)
    return {
        "tool": f"forkpoint {__version__}",
        "cause": verdict.cause,
        "headline": escape(verdict.headline),
        "summary": escape(verdict.summary[:2000]),
        "time_zero": f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{export.zero_ns % _NS_PER_S:09}Z",
        "clock": "each rank's times are from the clock of its own host",
        "slices": export.slices,
        "left_out": f"all but the newest {export.newest} entries of {older} ranks" if older else "nothing",
        "arrows": f"through at most {MAX_SLOTS} slots around the places where ranks diverge: {len(export.arrows)} here",
        "not_read_again": format_ranks(missing, 100) or "none",
    }


def _named(what: str, pid: int, **args: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "args": dict(args)}


def _text(text: str) -> str:
    return escape(text[:_MAX_CHARS])
