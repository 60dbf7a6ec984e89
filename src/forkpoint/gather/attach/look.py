"""A few looks at the ranks of one job on this machine: their recorders, their stacks, and which of them move.

Looks are about a second apart. A rank has moved if its recorder advanced, or, if that cannot be read, if it has left the
communication call that it was in. The last look is what gets diagnosed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from forkpoint.errors import ForkpointError
from forkpoint.evidence import read
from forkpoint.gather.attach.asking import AT_ONCE, Answer, ask_rank, find_pipes
from forkpoint.gather.attach.jobs import LiveJob, LiveRank
from forkpoint.gather.attach.samples import ProcessSample, sample_process
from forkpoint.gather.attach.stacks import INSTALL, NoStacks, find_py_spy, take_stacks
from forkpoint.judge.stacks import is_waiting_for_ranks
from forkpoint.live.watch.rule import ProgressTracker, RankStanding, standing_of
from forkpoint.live.watch.sources import Dump, Spool
from forkpoint.model.capture import Capture
from forkpoint.model.frames import is_python
from forkpoint.model.op import Stack
from forkpoint.model.trace import RankTrace
from forkpoint.model.world import ProcessGroup

PAUSES_S = (0.7, 1.3)
"""Between the looks. A step that takes longer than both looks like a hang; the recorder's times then tell."""
_NATIVE_AT_MOST = 16
"""Ranks whose native frames are read: those outside communication, usually one."""


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank in one look."""

    answer: Answer
    process: ProcessSample
    stacks_by: str = ""
    """What took its stacks; empty if nothing could."""
    missing: tuple[str, ...] = ()
    """What could not be obtained, and why."""


@dataclass(frozen=True, slots=True)
class Look:
    ranks: Mapping[int, RankSeen]
    dumps: tuple[Dump, ...]
    files: tuple[str, ...]
    """Dumps and stacks of all ranks, under names that contain the rank."""
    capture: Capture | None
    """None: there was nothing to read."""

    @property
    def traces(self) -> Iterable[RankTrace]:
        return self.capture.traces if self.capture else ()

    def stacks(self) -> dict[int, Stack]:
        return {live.rank: live.stack for live in self.capture.stacks} if self.capture else {}

    def standings(self) -> dict[int, RankStanding]:
        return {trace.rank: standing_of(trace) for trace in self.traces if trace.entries}


@dataclass(frozen=True, slots=True)
class Seen:
    """All looks together."""

    last: Look
    moved: frozenset[int]
    waiting: frozenset[int]
    """Ranks that were in a communication call, or had one pending, in every look."""
    visible: frozenset[int]
    """Ranks whose recorder or stacks show whether they move."""
    still_s: float
    """For how long none of these has moved, if none did: since the first look, or longer if the recorders' times say so."""

    @property
    def groups(self) -> tuple[ProcessGroup, ...]:
        return tuple(dict.fromkeys(group for seen in self.last.ranks.values() for group in seen.answer.groups))


@dataclass
class Looker:
    """Looks at one job."""

    job: LiveJob
    folder: Path
    """Where each look gets a folder."""
    stacks: bool = True
    """Whether py-spy may stop the processes for a moment."""
    tell: Callable[[RankSeen], None] = field(default=lambda _seen: None)
    """Called for each rank when it has been asked the first time."""

    def look_around(self, pauses_s: Sequence[float] = PAUSES_S) -> Seen:
        began = time.monotonic()
        tracker = ProgressTracker()
        looks = [self._look(0, frozenset())]
        step = tracker.step(looks[0].traces, looks[0].dumps)
        for number, pause_s in enumerate(pauses_s, 1):
            time.sleep(pause_s)
            native = _idle(looks[-1]) if number == len(pauses_s) else frozenset[int]()
            looks.append(self._look(number, native))
            step = tracker.step(looks[-1].traces, looks[-1].dumps)
        moved = frozenset(rank for before, after in pairwise(looks) for rank in _moved(before, after))
        waiting = frozenset.intersection(*map(_in_calls, looks)) | _pending(looks)
        seen = frozenset(looks[0].stacks()) | frozenset(looks[0].standings())
        return Seen(looks[-1], moved, waiting, seen, max(step.still_s, time.monotonic() - began))

    def _look(self, number: int, native: frozenset[int]) -> Look:
        spool = Spool(str(self.folder / str(number)))

        def ask(rank: LiveRank) -> RankSeen:
            answer = ask_rank(rank, spool, stacks=True)
            stacks = self._take_stacks(rank, spool, native=rank.rank in native) if answer.stacks is None else None
            return _join(rank, answer, stacks)

        ranks: dict[int, RankSeen] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for seen in pool.map(ask, self.job.ranks):
                ranks[seen.answer.rank] = seen
                if number == 0:
                    self.tell(seen)
        ranks |= self._ask_pipes(ranks, spool)
        dumps = tuple(seen.answer.dump for seen in ranks.values() if seen.answer.dump)
        stacks = tuple(seen.answer.stacks for seen in ranks.values() if seen.answer.stacks)
        files = (*(dump.path for dump in dumps), *stacks)
        return Look(ranks, dumps, files, _read(files))

    def _ask_pipes(self, ranks: Mapping[int, RankSeen], spool: Spool) -> dict[int, RankSeen]:
        """Ranks that have a dump now: a pipe stem is shared by all ranks of a machine, so they are asked together."""
        unasked = [rank for rank in self.job.ranks if ranks[rank.rank].answer.dump is None]
        gathered = [pipes.gather(spool, stacks=True) for pipes in find_pipes(unasked)]
        by_name = {Path(dump.path).stem: dump for one in gathered for dump in one.dumps}
        return {
            rank.rank: _with_dump(ranks[rank.rank], by_name[name])
            for rank in unasked
            if (name := f"rank_{rank.rank}") in by_name
        }

    def _take_stacks(self, rank: LiveRank, spool: Spool, *, native: bool) -> str | NoStacks:
        """A file."""
        if not rank.pid:
            return NoStacks("only its debug server can be asked from here")
        if not self.stacks:
            return NoStacks("not taken (--no-stacks)")
        py_spy = find_py_spy()
        if py_spy is None:
            return NoStacks(f"py-spy is not installed: {INSTALL}")
        found = take_stacks(rank.pid, py_spy, native=native)
        return found if isinstance(found, NoStacks) else spool.put(f"rank_{rank.rank}_stacks.json", found)


def _join(rank: LiveRank, answer: Answer, stacks: str | NoStacks | None) -> RankSeen:
    missing = [] if answer.dump else [f"{_NO_RECORDER}: {why}" for why in (answer.refused or (_NOBODY_TO_ASK,))]
    missing += [f"no stacks: {stacks.why}"] if isinstance(stacks, NoStacks) else []
    if isinstance(stacks, str):
        return RankSeen(replace(answer, stacks=stacks), sample_process(rank.pid), "py-spy", tuple(missing))
    return RankSeen(answer, sample_process(rank.pid), answer.way if answer.stacks else "", tuple(missing))


def _with_dump(seen: RankSeen, dump: Dump) -> RankSeen:
    missing = tuple(why for why in seen.missing if not why.startswith(_NO_RECORDER))
    return replace(seen, answer=replace(seen.answer, way="pipe", dump=dump), missing=missing)


_NO_RECORDER = "no recorder"
_NOBODY_TO_ASK = "it has no debug server, no guard (FORKPOINT=1) and no pipe"


def _read(files: Sequence[str]) -> Capture | None:
    try:
        return read(files) if files else None
    except ForkpointError:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Which ranks moved, which wait, which do something else.


def _moved(before: Look, after: Look) -> Iterable[int]:
    was, now = before.standings(), after.standings()
    yield from (rank for rank in was.keys() & now.keys() if was[rank] != now[rank])
    stood, stands = before.stacks(), after.stacks()
    for rank in (stood.keys() & stands.keys()) - (was.keys() & now.keys()):
        alike = before.ranks[rank].stacks_by == after.ranks[rank].stacks_by  # each tool names frames differently
        if alike and is_waiting_for_ranks(stood[rank]) and _python(stood[rank]) != _python(stands[rank]):
            yield rank


def _python(stack: Stack) -> Stack:
    """Without native frames, which only the last look has."""
    return tuple(frame for frame in stack if is_python(frame))


def _pending(looks: Sequence[Look]) -> frozenset[int]:
    """Ranks whose recorder has a pending call in every look: with NCCL the host goes on and waits elsewhere. A recorder that
    was read only once, as through the pipe, counts if the rank's stack never changed.
    """
    told: dict[int, list[bool]] = {}
    for look in looks:
        for rank, standing in look.standings().items():
            told.setdefault(rank, []).append(standing.is_pending)
    stacks = [{rank: _python(stack) for rank, stack in look.stacks().items()} for look in looks]
    stood = {rank for rank, stack in stacks[0].items() if all(one.get(rank) == stack for one in stacks)}
    return frozenset(rank for rank, each in told.items() if all(each) and (len(each) > 1 or rank in stood))


def _in_calls(look: Look) -> frozenset[int]:
    return frozenset(rank for rank, stack in look.stacks().items() if is_waiting_for_ranks(stack))


def _idle(look: Look) -> frozenset[int]:
    """Ranks outside communication: native frames show what blocks them."""
    standing = look.stacks()
    return frozenset(sorted(standing.keys() - _in_calls(look))[:_NATIVE_AT_MOST])
