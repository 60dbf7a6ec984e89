"""A few looks at the ranks of one job on this machine: their recorders, their stacks, and which of them move.

Looks are about a second apart. A rank has moved if its recorder advanced, or, if that cannot be read, if it has left the
communication call that it was in. The last look is what gets diagnosed.

Whatever takes longer than a look runs in parallel, and is awaited only up to a limit: dumps through pipes (torch checks its pipe
once a second), and native frames, for which py-spy reads the symbols of all libraries of a rank. The report says what is missing
then.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from forkpoint.errors import ForkpointError
from forkpoint.evidence import read
from forkpoint.evidence.stacks.shapes import Shape, find_shape
from forkpoint.gather.attach.asking import AT_ONCE, Answer, ask_pipes, ask_rank
from forkpoint.gather.attach.jobs import LiveJob, LiveRank
from forkpoint.gather.attach.stacks import INSTALL, NoStacks, ProcessSample, find_py_spy, sample_process, take_stacks
from forkpoint.judge.facts.stacks import is_waiting_for_ranks
from forkpoint.live.watch.rule import ProgressTracker, RankStanding, standing_of
from forkpoint.live.watch.sources import Dump, Spool
from forkpoint.model.capture import Capture
from forkpoint.model.frames import is_python
from forkpoint.model.op import Stack
from forkpoint.model.trace import RankTrace
from forkpoint.model.world import ProcessGroup

PAUSES_S = (0.7, 1.3)
"""Between the looks. A step that takes longer than both looks like a hang; the recorder's times then tell."""
_NATIVE_WITHIN_S = 5.0
"""For native frames of all ranks together. They rarely decide, so the answer does not wait longer for them."""
_NATIVE_AT_MOST = 16
"""Ranks whose native frames are read."""
_OPEN = (Shape.PYTHON, Shape.UNKNOWN, Shape.LOCK)
"""What Python's frames leave open: a built-in that blocks, and the thread that holds a lock, are visible in native frames only."""

_BLOCKING_WAIT = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
"""With these, NCCL's waits sleep for a millisecond and check again."""

_log = logging.getLogger(__name__)


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
    spool: Spool
    """Where they are."""
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
    """Called for each rank after it was first asked, and when its pipe has delivered something."""

    def look_around(self, pauses_s: Sequence[float] = PAUSES_S) -> Seen:
        began = time.monotonic()
        with ThreadPoolExecutor(1) as beside:
            looks = [self._look(0)]
            piped = beside.submit(self._ask_pipes, looks[0])
            for number, pause_s in enumerate(pauses_s, 1):
                time.sleep(pause_s)
                looks.append(self._look(number, looks[0]))
            native = {} if self._moved_by_stacks(looks) else self._take_native(looks[-1])
            looks[0] = piped.result()
            looks[-1] = _join_native(self._ask_pipes_again(looks[0], looks[-1]), native)
        tracker = ProgressTracker()
        steps = [tracker.step(look.traces, look.dumps) for look in looks]
        moved = frozenset(rank for step in steps for rank in step.moved) | self._moved_by_stacks(looks)
        waiting = frozenset.intersection(*map(_in_calls, looks)) | _pending(looks)
        seen = frozenset(looks[0].stacks()) | frozenset(looks[0].standings())
        return Seen(looks[-1], moved, waiting, seen, max(steps[-1].still_s, time.monotonic() - began))

    def _look(self, number: int, first: Look | None = None) -> Look:
        spool = Spool(str(self.folder / str(number)))

        def ask(rank: LiveRank) -> RankSeen:
            answer = (
                _ask_again(rank, spool, first.ranks[rank.rank].answer) if first else ask_rank(rank, spool, stacks=True)
            )
            stacks = self._take_stacks(rank, spool) if answer.stacks is None else None
            return _join(rank, answer, stacks)

        ranks: dict[int, RankSeen] = {}
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for seen in pool.map(ask, self.job.ranks):
                ranks[seen.answer.rank] = seen
                if number == 0:
                    self.tell(seen)
        _log.info("look %d: %d ranks in %.2f s", number, len(ranks), time.monotonic() - began)
        return _look_at(spool, ranks)

    def _take_stacks(self, rank: LiveRank, spool: Spool) -> str | NoStacks:
        """A file."""
        if not rank.pid:
            return NoStacks("only its debug server can be asked from here")
        if not self.stacks:
            return NoStacks("not taken (--no-stacks)")
        py_spy = find_py_spy()
        if py_spy is None:
            return NoStacks(f"py-spy is not installed: {INSTALL}")
        found = take_stacks(rank.pid, py_spy)
        return found if isinstance(found, NoStacks) else spool.put(_stacks_name(rank.rank), found)

    def _moved_by_stacks(self, looks: Sequence[Look]) -> frozenset[int]:
        """Of ranks whose recorder cannot be read."""
        polls = any(rank.environ.get(name, "0") not in ("", "0") for rank in self.job.ranks for name in _BLOCKING_WAIT)
        return _left_calls(looks) | (frozenset[int]() if polls else _woken(looks))

    # -----------------------------------------------------------------------------------------------------------------
    # In parallel to the looks.

    def _ask_pipes(self, look: Look) -> Look:
        """With the dumps of those ranks that have a pipe and answer in no other way."""
        asked = self._with_pipes(look, [rank for rank in self.job.ranks if look.ranks[rank.rank].answer.dump is None])
        for rank, seen in asked.ranks.items():
            if seen != look.ranks[rank]:
                self.tell(seen)
        return asked

    def _ask_pipes_again(self, first: Look, last: Look) -> Look:
        """Ranks that did not answer the first time keep their reason and are not waited for twice."""
        answered = {number for number, seen in first.ranks.items() if seen.answer.way == _PIPE}
        asked = self._with_pipes(last, [rank for rank in self.job.ranks if rank.rank in answered])
        ranks = {
            number: seen if seen.answer.dump else _with_pipe_of(first.ranks[number], seen)
            for number, seen in asked.ranks.items()
        }
        return asked if ranks == asked.ranks else _look_at(asked.spool, ranks)

    def _with_pipes(self, look: Look, asked: Sequence[LiveRank]) -> Look:
        began = time.monotonic()
        answers = ask_pipes(asked, look.spool)
        _log.info("pipes: %s answered in %.2f s", sorted(answers.dumps), time.monotonic() - began)
        ranks = dict(look.ranks)
        ranks |= {rank: _with_dump(ranks[rank], dump) for rank, dump in answers.dumps.items()}
        ranks |= {rank: _without_dump(ranks[rank], why) for rank, why in answers.why_not.items()}
        return _without_foreign(_look_at(look.spool, ranks)) if ranks != look.ranks else look

    def _take_native(self, look: Look) -> Mapping[int, bytes | NoStacks]:
        """Of the ranks whose Python frames leave open what blocks them; first of one rank at each place."""
        py_spy = find_py_spy()
        if py_spy is None:
            return {}
        deadline = time.monotonic() + _NATIVE_WITHIN_S
        pids = {rank.rank: rank.pid for rank in self.job.ranks}
        chosen = [rank for rank in _open_ranks(look) if look.ranks[rank].stacks_by == _PY_SPY][:_NATIVE_AT_MOST]

        def take(rank: int) -> bytes | NoStacks:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return NoStacks(f"{_NATIVE_WITHIN_S:.0f} s were over before its turn")
            took = take_stacks(pids[rank], py_spy, native=True, limit_s=left_s)
            _log.info("native frames of rank %d: %.2f s of the time are left", rank, deadline - time.monotonic())
            return took

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(chosen, pool.map(take, chosen), strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Combining what was obtained from ranks.

_PIPE, _PY_SPY = "pipe", "py-spy"
_NO_RECORDER = "no recorder"
_NOBODY_TO_ASK = "no debug server, no guard (FORKPOINT=1), no pipe"


def _stacks_name(rank: int) -> str:
    return f"rank_{rank}_stacks.json"


def _ask_again(rank: LiveRank, spool: Spool, first: Answer) -> Answer:
    """Asks nothing again that was not answered in the first look: each unanswered question takes seconds."""
    if first.dump is None:
        return Answer(rank.rank, refused=first.refused)
    answer = ask_rank(rank, spool, stacks=not first.no_stacks)
    return replace(answer, no_stacks=answer.no_stacks or first.no_stacks)


def _join(rank: LiveRank, answer: Answer, stacks: str | NoStacks | None) -> RankSeen:
    missing = [] if answer.dump else [f"{_NO_RECORDER}: {why}" for why in (answer.refused or (_NOBODY_TO_ASK,))]
    if isinstance(stacks, NoStacks):
        missing.append(f"no stacks: {'; '.join(filter(None, (answer.no_stacks, stacks.why)))}")
    if isinstance(stacks, str):
        return RankSeen(replace(answer, stacks=stacks), sample_process(rank.pid), _PY_SPY, tuple(missing))
    return RankSeen(answer, sample_process(rank.pid), answer.way if answer.stacks else "", tuple(missing))


def _with_dump(seen: RankSeen, dump: Dump) -> RankSeen:
    return replace(seen, answer=replace(seen.answer, way=_PIPE, dump=dump), missing=_stacks_missing(seen))


def _without_dump(seen: RankSeen, why: str) -> RankSeen:
    return replace(seen, missing=(*_stacks_missing(seen), f"{_NO_RECORDER}: {_PIPE}: {why}"))


def _without_foreign(look: Look) -> Look:
    """On a home directory shared by machines, dumps of two jobs can have the same name: what another program wrote there is not
    evidence.
    """
    stacks, ranks = look.stacks(), dict(look.ranks)
    for trace in look.traces:
        written, runs = trace.script, _script(stacks.get(trace.rank, ()))
        if ranks[trace.rank].answer.way == _PIPE and written and runs and written != runs:
            why = f"the dump in its file is of another program ({written}); set TORCH_FR_DUMP_TEMP_FILE for each job"
            seen = ranks[trace.rank]
            ranks[trace.rank] = _without_dump(replace(seen, answer=replace(seen.answer, way="", dump=None)), why)
    return look if ranks == look.ranks else _look_at(look.spool, ranks)


def _script(stack: Stack) -> str | None:
    """Like `RankTrace.script`, for a rank that is running."""
    outermost = next((frame for frame in reversed(stack) if is_python(frame)), None)
    return outermost.filename if outermost and outermost.name == "<module>" else None


def _with_pipe_of(first: RankSeen, seen: RankSeen) -> RankSeen:
    """What its pipe gave in the first look: a dump, or a reason."""
    if first.answer.way == _PIPE and first.answer.dump:
        return _with_dump(seen, first.answer.dump)
    told = tuple(why for why in first.missing if why.startswith(_NO_RECORDER))
    return replace(seen, missing=(*_stacks_missing(seen), *told))


def _stacks_missing(seen: RankSeen) -> tuple[str, ...]:
    return tuple(why for why in seen.missing if not why.startswith(_NO_RECORDER))


def _join_native(look: Look, native: Mapping[int, bytes | NoStacks]) -> Look:
    """A rank whose native frames could not be read keeps its Python frames."""
    ranks = dict(look.ranks)
    for rank, found in native.items():
        if isinstance(found, NoStacks):
            ranks[rank] = replace(ranks[rank], missing=(*ranks[rank].missing, f"no native frames: {found.why}"))
        else:
            look.spool.put(_stacks_name(rank), found)
    return _look_at(look.spool, ranks) if native else look


def _look_at(spool: Spool, ranks: Mapping[int, RankSeen]) -> Look:
    dumps = tuple(seen.answer.dump for seen in ranks.values() if seen.answer.dump)
    stacks = tuple(seen.answer.stacks for seen in ranks.values() if seen.answer.stacks)
    files = (*(dump.path for dump in dumps), *stacks)
    return Look(ranks, dumps, files, spool, _read(files))


def _read(files: Sequence[str]) -> Capture | None:
    try:
        return read(files) if files else None
    except ForkpointError:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Which ranks moved, which wait, which do something else.

_TWICE = 2
_BY_PY_SPY, _BY_OTHERS = 2, 8
"""How often a main thread that sleeps is woken by one dump of py-spy (measured), and by other tools that look at the same time."""


def _left_calls(looks: Sequence[Look]) -> frozenset[int]:
    """Ranks whose recorder was not read twice, and which are no longer in the communication call that they were in."""
    read_in = Counter(rank for look in looks for rank in look.standings())
    found: set[int] = set()
    for before, after in pairwise(looks):
        stood, stands = before.stacks(), after.stacks()
        for rank in stood.keys() & stands.keys():
            alike = before.ranks[rank].stacks_by == after.ranks[rank].stacks_by  # each tool names frames differently
            if read_in[rank] < _TWICE and alike and is_waiting_for_ranks(stood[rank]):
                found |= {rank} if _python(stood[rank]) != _python(stands[rank]) else set()
    return frozenset(found)


def _woken(looks: Sequence[Look]) -> frozenset[int]:
    """All ranks, if each of them woke again and again: a loop of short steps returns to the same lines. If a rank does not come,
    those that wait for it do not wake, except for py-spy.
    """
    first, last = looks[0], looks[-1]
    most = _BY_PY_SPY * (len(looks) - 1) + _BY_OTHERS
    woke = {
        rank
        for rank, seen in last.ranks.items()
        if seen.process.started == first.ranks[rank].process.started
        and seen.process.switches - first.ranks[rank].process.switches > most
    }
    return frozenset(woke) if woke == last.ranks.keys() and any(map(_in_calls, looks)) else frozenset()


def _python(stack: Stack) -> Stack:
    """Without native frames, which only the last look has."""
    return tuple(frame for frame in stack if is_python(frame))


def _pending(looks: Sequence[Look]) -> frozenset[int]:
    """Ranks whose recorder has a pending call in every look: with NCCL the host continues and waits elsewhere. A recorder that
    was read only once, because its pipe did not answer again, counts if the rank's stack never changed.
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


def _open_ranks(look: Look) -> list[int]:
    """Ranks outside communication, if their Python frames do not say what blocks them: first one of each place in the program."""
    standing = look.stacks()
    found = sorted(r for r in standing.keys() - _in_calls(look) if find_shape(standing[r]) in _OPEN)
    before: Counter[Stack] = Counter()
    turns: dict[int, int] = {}
    for rank in found:
        turns[rank] = before[standing[rank]]
        before[standing[rank]] += 1
    return sorted(found, key=lambda rank: (turns[rank], rank))
