"""What ranks' own lines say when they are compared: who was waited for, who left something out, who made other calls or groups."""

import re
from collections import Counter

from msgspec import Struct

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.evidence.text import read_stamp
from forkpoint.judge.blame import TIMEOUTS, blames_peers, cut_off, find_exits
from forkpoint.judge.cite import cite_event, events_of, has_log, verb
from forkpoint.judge.printed_values import own_logs
from forkpoint.judge.rounds import is_at_own_work
from forkpoint.judge.stacks import find_standings, waits_for_all
from forkpoint.model.frames import in_side_thread, user_frames
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Lines with which a program itself says that it left something out: a batch, a step, the rest of an epoch.

_LEAST = 2
"""Other ranks that must be heard, for the silence of all of them to mean something."""


def find_lone_notice(incident: Incident) -> LogEvent | None:
    """The last such line of the only rank that printed one, where others have logs too."""
    notices = [e for e in incident.capture.events if e.kind is LogKind.NOTICE and e.rank is not None]
    ranks = {e.rank for e in notices}
    others = incident.heard - ranks
    if len(ranks) != 1 or len(others) < max(_LEAST, len(incident.timeline.world) // 2):
        return None
    return max(notices, key=lambda event: event.line)


def find_last_words(sides: tuple[tuple[int, ...], ...], incident: Incident) -> LogEvent | None:
    """Of sides that made different calls: the line with which a rank said, last of all and as the only rank, that it leaves
    something out or goes on otherwise. It must be all of its side, or others of that side would have said so too.
    """
    notice = find_lone_notice(incident)
    ends = incident.capture.log_ends.get(notice.file) if notice else None
    if notice is None or notice.rank is None or (notice.rank,) not in sides or ends is None:
        return None
    return notice if ends.lines and notice.text in ends.lines[-1] else None


# ---------------------------------------------------------------------------------------------------------------------
# Ranks for which all others waited, by what logs say alone: who kept working meanwhile, and who did not come to a
# barrier.

_NUMBER = re.compile(r"\d{1,7}")
_REPEATS = 3
"""Lines in a row that speak of another try: one alone may be followed by success."""
_CLOCK = re.compile(r"[\[(]?(\d\d):(\d\d):(\d\d)\b")
"""A time without a date."""
_RETRIES = re.compile(
    r"\bretry|\bretries\b|\battempt\b|\b(?:still )?waiting (?:for|on)\b|\btry(?:ing)? again\b", re.IGNORECASE
)
_NEAR = 1_800_000_000.0
"""Some second, to find a year that is not printed: all times here are of one job."""


class WorkedOn(Struct, frozen=True):
    """A rank whose program went on printing while all others waited, until they gave up."""

    rank: int
    seconds: int
    """How much later than those of all others its last line is."""
    timeout_ms: int
    evidence: tuple[Evidence, ...]
    waited: str
    """In words: who waited for it."""
    retries: bool = False
    """Its last lines say that it tries the same thing again and again, or waits for something."""


def find_who_did_not_come(incident: Incident) -> int | None:
    """The only rank that says nothing of a failure, where ranks gave up waiting, and all others with them or because they had gone.

    A process that dies closes its connections at once, and then nobody waits until a timeout. One that waits for others gives up
    like them, or loses its connections when they end. So it lived, and was in no call.
    """
    gave_up = find_gave_up(incident)
    rest = set(incident.timeline.world) - gave_up.keys() - cut_off(incident)
    failed = {e.rank for e in incident.capture.events if e.is_failure}
    alone = len(rest) == 1 and len(gave_up) > 1 and not rest & failed and incident.timeline.unseen <= 1
    ended = {rank for rank, end in find_exits(incident).items() if end.is_first}
    return rest.pop() if alone and not rest & ended else None


def find_gave_up(incident: Incident) -> dict[int, LogEvent]:
    return {e.rank: e for e in incident.capture.events if e.kind in TIMEOUTS and e.rank is not None}


def find_worked_on(incident: Incident) -> WorkedOn | None:
    """Nothing of it speaks of a failure, and it went on for long after the last line of every other rank."""
    rank, gave_up, capture = find_who_did_not_come(incident), find_gave_up(incident), incident.capture
    waited, least = [r for r in incident.timeline.world if r != rank], 0.5
    if rank is None:
        rank, waited, least = _find_at_own_work(incident), list(gave_up), 1
    if rank is None:
        return None
    own, others = _last_second(rank, incident), [_last_second(r, incident) for r in waited]
    timeout_ms = max((_timeout_ms(event) for event in gave_up.values()), default=0)
    if own is None or not timeout_ms or any(other is None or other.dated != own.dated for other in others):
        return None
    later = own.second - max(other.second for other in others if other is not None)
    if later * 1000 < timeout_ms * least:
        return None
    file = own_logs(incident)[rank]
    lines = capture.log_ends[file].lines
    cited = (Evidence(file, rank, "end", lines[-1]), *(cite_event(e) for e in list(gave_up.values())[:3]))
    retries = len(lines) >= _REPEATS and all(_RETRIES.search(line) for line in lines[-_REPEATS:])
    who = "the others" if len(waited) + 1 == len(incident.timeline.world) else name_ranks(waited)
    return WorkedOn(rank, later, timeout_ms, cited, who, retries)


def _find_at_own_work(incident: Incident) -> int | None:
    """Some ranks were not heard, and all that were gave up in a call of the whole job, except one that is at work which it alone does.
    Had it been in that call, it would have given up as well; and none of these calls ends without it.
    """
    gave_up, standings = find_gave_up(incident), find_standings(incident)
    rest = sorted(set(own_logs(incident)) - gave_up.keys() - cut_off(incident))
    inside = [standings[rank] for rank in gave_up if rank in standings]
    if len(rest) != 1 or not gave_up or len(inside) < len(gave_up) or not is_quiet(rest[0], incident):
        return None
    for_all = all(waits_for_all(one) and not one.may_end_alone for one in inside)
    return rest[0] if for_all and is_at_own_work(rest[0], set(gave_up), incident) else None


@fact
def find_missed(incident: Incident) -> tuple[tuple[int, ...], tuple[LogEvent, ...]]:
    """Ranks that did not come to a monitored barrier, as rank 0 names them, and its words."""
    told = tuple(e for e in incident.capture.events if e.kind is LogKind.BARRIER_MISSED and e.rank == 0)
    return tuple(sorted({int(n) for e in told for n in _NUMBER.findall(e.detail("missing") or "")})), told


def came_later(ranks: tuple[int, ...], incident: Incident) -> tuple[LogEvent, ...]:
    """Their own words that they came to a barrier after all; empty unless all of them say so."""
    came = [e for r in ranks for e in events_of(r, incident, LogKind.PEER_TIMEOUT) if e.pattern.startswith("barrier-")]
    return tuple(came) if {e.rank for e in came} == set(ranks) else ()


def were_alive(ranks: tuple[int, ...], incident: Incident) -> tuple[Evidence, ...]:
    """Their launcher's word that it had to stop them, and none of their own of a failure; empty unless so for all."""
    exits = find_exits(incident)
    failed = {e.rank for e in incident.capture.events if e.is_failure and e.kind is not LogKind.BARRIER_MISSED}
    stopped = [exits[r] for r in ranks if r in exits and exits[r].is_stopped and r not in failed]
    return tuple(cite_event(end.event) for end in stopped) if len(stopped) == len(ranks) else ()


def is_quiet(rank: int, incident: Incident) -> bool:
    """Its whole log is there and reports no failure."""
    failed = [e for e in incident.said.get(rank, ()) if e.is_failure and not in_side_thread(e.stack)]
    cut = any(owner == rank and file in incident.capture.cut_logs for file, owner in incident.capture.logs)
    return has_log(rank, incident) and not cut and not failed


def _timeout_ms(event: LogEvent) -> int:
    return event.work.timeout_ms if event.work else int(event.detail("ms") or 0)


class _Said(Struct, frozen=True):
    second: int
    dated: bool
    """Seconds since 1970; otherwise since midnight."""


def _last_second(rank: int, incident: Incident) -> _Said | None:
    """Of the last line that the program itself printed with a time, in a log of its own."""
    file = own_logs(incident).get(rank)
    ending = incident.capture.log_ends[file] if file else None
    stamp = read_stamp(ending.own_time) if ending and ending.own_time else None
    second = stamp.seconds(_NEAR) if stamp else None
    if second is not None:
        return _Said(second, dated=True)
    clock = next((found for line in reversed(ending.lines) if (found := _CLOCK.match(line))), None) if ending else None
    return _Said(int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3]), dated=False) if clock else None


# ---------------------------------------------------------------------------------------------------------------------
# Calls that ranks compared before they made them (TORCH_DISTRIBUTED_DEBUG=DETAIL): who called what, by their own
# words.


class ComparedCall(Struct, frozen=True):
    op: str
    shape: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op} [{self.shape}] {self.dtype}".rstrip()


class CallMismatch(Struct, frozen=True):
    calls: dict[int, ComparedCall]
    odd: tuple[int, ...]
    """Those that differ from most of the job; empty where no call is that of most."""
    events: tuple[LogEvent, ...]

    @property
    def is_other_path(self) -> bool:
        """Another operation, or the same from another line."""
        ops = {call.op for call in self.calls.values()}
        places = {_place(event.stack) for event in self.events if event.stack}
        return len(ops) > 1 or len(places) > 1

    @property
    def divergence(self) -> Divergence:
        world = tuple(sorted(self.calls))
        sides = tuple(tuple(r for r in world if self.calls[r] == call) for call in dict.fromkeys(self.calls.values()))
        stacks = {event.rank: event.stack for event in self.events if event.stack}
        cohorts = tuple(
            Cohort(side, Role.WAITING, self.calls[side[0]].op.lower(), stack=stacks.get(side[0])) for side in sides
        )
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


@fact
def find_call_mismatch(incident: Incident) -> CallMismatch | None:
    """None also where the numbers in the words are not those of the job: then they are ranks within another group."""
    events = [e for e in incident.capture.events if e.kind is LogKind.CALLS_DIFFER and e.rank is not None]
    if not events or any(e.detail("own") != str(e.rank) for e in events):
        return None
    peers = {int(e.detail("peer") or -1): _call(e, "peer") for e in events}
    calls = {**peers, **{e.rank: _call(e, "own") for e in events if e.rank is not None}}
    usual, times = Counter(calls.values()).most_common(1)[0]
    outvoted = 2 * times > len(incident.timeline.world) + incident.timeline.unseen
    odd = tuple(sorted(rank for rank, call in calls.items() if call != usual)) if outvoted else ()
    return CallMismatch(calls, odd, tuple(events))


def _call(event: LogEvent, whose: str) -> ComparedCall:
    return ComparedCall(*(event.detail(f"{whose}_{part}") or "" for part in ("op", "shape", "dtype")))


def _place(stack: Stack) -> tuple[tuple[str, int], ...]:
    return tuple((frame.filename, frame.line) for frame in user_frames(stack))


# ---------------------------------------------------------------------------------------------------------------------
# Models that DDP compared when it was made: each rank says what it holds, and that another holds something else.

_OF_RANK_0 = "as rank 0"


class ModelMismatch(Struct, frozen=True):
    models: dict[int, str]
    """By rank: what it holds, as far as words tell."""
    odd: tuple[int, ...]
    """Those that differ from most of the job; empty where no model is that of most."""
    events: tuple[LogEvent, ...]

    @property
    def sides(self) -> tuple[tuple[int, ...], ...]:
        """The fewest first."""
        kinds = dict.fromkeys(self.models.values())
        sides = (tuple(sorted(r for r, model in self.models.items() if model == kind)) for kind in kinds)
        return tuple(sorted(sides, key=lambda side: (len(side), side)))

    @property
    def told(self) -> str:
        """What the sides hold of which it is known."""
        known = [side for side in self.sides if self.models[side[0]] != _OF_RANK_0]
        return ", ".join(f"{plain_ranks(side)} {verb(side, 'holds', 'hold')} {self.models[side[0]]}" for side in known)

    @property
    def divergence(self) -> Divergence:
        stacks = {event.rank: event.stack for event in self.events if event.stack}
        # torch gathers the numbers of parameters; their sizes it broadcasts from rank 0.
        op = "all_gather" if any(event.detail("own_count") for event in self.events) else "broadcast"
        cohorts = tuple(Cohort(side, Role.WAITING, op, stack=stacks.get(side[0])) for side in self.sides)
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


def find_model_mismatch(incident: Incident) -> ModelMismatch | None:
    """None also where the numbers in the words are not those of the job: then they are ranks within another group."""
    events = [e for e in incident.capture.events if e.kind is LogKind.MODELS_DIFFER and e.rank is not None]
    if not events or any((e.detail("own") or e.detail("number")) != str(e.rank) for e in events):
        return None
    peers = {int(e.detail("peer") or 0): f"{e.detail('peer_count')} parameters" for e in events if e.detail("peer")}
    models = peers | {e.rank: _held_by(e) for e in events if e.rank is not None}
    if any(e.detail("sizes") for e in events):
        models |= dict.fromkeys(_hold_as_rank_0(incident) - models.keys(), _OF_RANK_0)
    usual, times = Counter(models.values()).most_common(1)[0]
    outvoted = 2 * times > len(incident.timeline.world) + incident.timeline.unseen
    odd = tuple(sorted(rank for rank, model in models.items() if model != usual)) if outvoted else ()
    return ModelMismatch(models, odd, tuple(events))


def _held_by(event: LogEvent) -> str:
    count, at, sizes = (event.detail(name) for name in ("own_count", "parameter", "sizes"))
    return f"{count} parameters" if count else f"params[{at}] of sizes {sizes}"


def _hold_as_rank_0(incident: Incident) -> set[int]:
    """Rank 0, and ranks that came further than the comparison: what they say is of another call."""
    further = {
        event.rank
        for event in incident.capture.events
        if event.rank is not None and event.stack and blames_peers(event) and event.kind is not LogKind.MODELS_DIFFER
        if not any("_verify_param" in frame.name for frame in event.stack)
    }
    return {0, *further}


# ---------------------------------------------------------------------------------------------------------------------
# Groups that ranks did not make alike. Names of groups are counted, so who makes one more, or one less, gives the next
# one the name of another: ranks then wait for each other in groups that are not the same.


class GroupMismatch(Struct, frozen=True):
    name: str
    sizes: dict[int, int]
    """By rank: how many members the group has there."""
    odd: tuple[int, ...]
    events: tuple[LogEvent, ...]

    @property
    def told(self) -> str:
        sides: dict[int, list[int]] = {}
        for rank, size in sorted(self.sizes.items()):
            sides.setdefault(size, []).append(rank)
        members = ", ".join(f"{size} members on {name_ranks(ranks)}" for size, ranks in sides.items())
        return f"group {self.name} has {members}: ranks did not make the same new_group calls"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        first = {
            size: next(e for e in self.events if self.sizes.get(e.rank or 0) == size)
            for size in set(self.sizes.values())
        }
        return tuple(cite_event(event) for event in first.values())


def find_group_mismatch(incident: Incident) -> GroupMismatch | None:
    """Of the first group, by number, that ranks say to have made with different sizes (at INFO level)."""
    made: dict[str, dict[int, LogEvent]] = {}
    for event in incident.capture.events:
        name = event.detail("group_name") if event.kind is LogKind.SETTINGS else None
        if name and event.rank is not None and event.detail("size"):
            made.setdefault(name, {})[event.rank] = event
    for name in sorted((n for n in made if n.isdigit()), key=int):
        sizes = {rank: int(event.detail("size") or 0) for rank, event in made[name].items()}
        if len(set(sizes.values())) > 1:
            usual, times = Counter(sizes.values()).most_common(1)[0]
            odd = tuple(sorted(r for r, size in sizes.items() if size != usual))
            named = odd if 2 * times > len(incident.timeline.world) else ()
            return GroupMismatch(name, sizes, named, tuple(made[name].values()))
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that had issued other numbers of calls at the end of the same training step: what `guard.step` tells.


class StepParting(Struct, frozen=True):
    group: str
    step: int
    odd: tuple[int, ...]
    """Empty where no number is that of most ranks."""
    by: int
    """Calls that the odd ranks have more, or fewer (negative), than the others; 0 where nobody is odd."""
    evidence: tuple[Evidence, ...]

    @property
    def told(self) -> str:
        where = f"in group {self.group} by the end of step {self.step}"
        if not self.odd:
            return f"ranks had issued different numbers of calls {where}"
        more = f"{abs(self.by)} {'more' if self.by > 0 else 'fewer'} call{'s' if abs(self.by) > 1 else ''}"
        return f"{name_ranks(self.odd)} had issued {more} than the others {where}"


def find_step_parting(incident: Incident) -> StepParting | None:
    """The earliest step at whose end ranks differ; of those that all ranks told, if there is one."""
    counts: dict[tuple[int, str], dict[int, int]] = {}
    for count in incident.capture.steps:
        counts.setdefault((count.step, count.group), {})[count.rank] = count.calls
    parted = [(key, calls) for key, calls in sorted(counts.items()) if len(set(calls.values())) > 1]
    whole = [(key, calls) for key, calls in parted if len(calls) == len(incident.timeline.world)]
    for (step, group), calls in (whole or parted)[:1]:
        return _parting(group, step, calls, incident)
    return None


def _parting(group: str, step: int, calls: dict[int, int], incident: Incident) -> StepParting:
    usual, times = Counter(calls.values()).most_common(1)[0]
    decided = 2 * times > len(incident.timeline.world)
    odd = tuple(sorted(rank for rank, n in calls.items() if n != usual)) if decided else ()
    by = {calls[rank] - usual for rank in odd}
    file = next(c.file for c in incident.capture.steps)
    shown = [*odd[:2], *(rank for rank in sorted(calls) if rank not in odd)][:4]
    return StepParting(
        group,
        step,
        odd,
        by.pop() if len(by) == 1 else 0,
        tuple(Evidence(file, r, f"step {step}", f"{calls[r]} calls in group {group}") for r in shown),
    )
