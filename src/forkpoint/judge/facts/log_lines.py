"""What ranks' own lines show when compared: who was waited for, who skipped something, who made other calls or groups."""

from collections import Counter

from msgspec import Struct

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.judge.facts.blame import blames_peers
from forkpoint.judge.facts.cite import cite_event, verb
from forkpoint.model.frames import user_frames
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Lines with which a program itself says that it skipped something: a batch, a step, the rest of an epoch.

_LEAST = 2
"""Number of other ranks that must have logs for the silence of all of them to mean something."""


def find_lone_notice(incident: Incident) -> LogEvent | None:
    """The last such line of the only rank that printed one, if others have logs too."""
    notices = [e for e in incident.capture.events if e.kind is LogKind.NOTICE and e.rank is not None]
    ranks = {e.rank for e in notices}
    others = incident.heard - ranks
    if len(ranks) != 1 or len(others) < max(_LEAST, len(incident.timeline.world) // 2):
        return None
    return max(notices, key=lambda event: event.line)


def find_last_words(sides: tuple[tuple[int, ...], ...], incident: Incident) -> LogEvent | None:
    """For sides that made different calls: the last line of a rank, if it is the only rank that says that it skips
    something or continues differently. The rank must be its whole side, because others of that side would have said
    so too.
    """
    notice = find_lone_notice(incident)
    ends = incident.capture.log_ends.get(notice.file) if notice else None
    if notice is None or notice.rank is None or (notice.rank,) not in sides or ends is None:
        return None
    return notice if ends.lines and notice.text in ends.lines[-1] else None


# ---------------------------------------------------------------------------------------------------------------------
# Calls that ranks compared before they made them (TORCH_DISTRIBUTED_DEBUG=DETAIL): who called what, in their own words.


class ComparedCall(Struct, frozen=True):
    op: str
    shape: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op} [{self.shape}] {self.dtype}".rstrip()


class CallMismatch(Struct, frozen=True):
    calls: dict[int, ComparedCall]
    odd: tuple[int, ...]
    """Those that differ from most of the job; empty if no call is the majority's."""
    events: tuple[LogEvent, ...]

    @property
    def is_other_path(self) -> bool:
        """Another operation, or the same one from another line."""
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
    """None also if the numbers in the lines are not those of the job: then they are ranks within another group."""
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
# Models that DDP compared when it was constructed: each rank logs what it holds, and that another holds something else.

_OF_RANK_0 = "as rank 0"


class ModelMismatch(Struct, frozen=True):
    models: dict[int, str]
    """By rank: what it holds, as far as lines tell."""
    odd: tuple[int, ...]
    """Those that differ from most of the job; empty if no model is the majority's."""
    events: tuple[LogEvent, ...]

    @property
    def sides(self) -> tuple[tuple[int, ...], ...]:
        """The smallest side first."""
        kinds = dict.fromkeys(self.models.values())
        sides = (tuple(sorted(r for r, model in self.models.items() if model == kind)) for kind in kinds)
        return tuple(sorted(sides, key=lambda side: (len(side), side)))

    @property
    def told(self) -> str:
        """What the sides hold, for those that are known."""
        known = [side for side in self.sides if self.models[side[0]] != _OF_RANK_0]
        return ", ".join(f"{plain_ranks(side)} {verb(side, 'holds', 'hold')} {self.models[side[0]]}" for side in known)

    @property
    def divergence(self) -> Divergence:
        stacks = {event.rank: event.stack for event in self.events if event.stack}
        # torch gathers the number of parameters from all ranks, but broadcasts their sizes from rank 0.
        op = "all_gather" if any(event.detail("own_count") for event in self.events) else "broadcast"
        cohorts = tuple(Cohort(side, Role.WAITING, op, stack=stacks.get(side[0])) for side in self.sides)
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


def find_model_mismatch(incident: Incident) -> ModelMismatch | None:
    """None also if the numbers in the lines are not those of the job: then they are ranks within another group."""
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
    """Rank 0, and ranks that got past the comparison: what they log is about another call."""
    further = {
        event.rank
        for event in incident.capture.events
        if event.rank is not None and event.stack and blames_peers(event) and event.kind is not LogKind.MODELS_DIFFER
        if not any("_verify_param" in frame.name for frame in event.stack)
    }
    return {0, *further}


# ---------------------------------------------------------------------------------------------------------------------
# Groups that ranks did not create alike. Groups are named by a counter, so a rank that creates one more or one less
# gives the next group the name of another: ranks then wait for each other in groups that are not the same.


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

    @property
    def plain(self) -> str:
        who = plain_ranks(self.odd) if self.odd else "ranks"
        others = " as the others" if self.odd else ""
        return f"{who} did not make the same new_group calls{others}, so that one name stands for different groups"


def find_group_mismatch(incident: Incident) -> GroupMismatch | None:
    """The first group, by number, that ranks log to have created with different sizes (at INFO level)."""
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
# Ranks that had issued different numbers of calls at the end of the same training step, as reported by `guard.step`.


class StepParting(Struct, frozen=True):
    group: str
    step: int
    odd: tuple[int, ...]
    """Empty if no number is the majority's."""
    by: int
    """How many more calls the odd ranks have made than the others (negative: fewer); 0 if nobody is odd."""
    evidence: tuple[Evidence, ...]

    @property
    def told(self) -> str:
        where = f"in group {self.group} by the end of step {self.step}"
        if not self.odd:
            return f"ranks had issued different numbers of calls {where}"
        more = f"{abs(self.by)} {'more' if self.by > 0 else 'fewer'} call{'s' if abs(self.by) > 1 else ''}"
        return f"{name_ranks(self.odd)} had issued {more} than the others {where}"


def find_step_parting(incident: Incident) -> StepParting | None:
    """The earliest step at whose end ranks differ, preferably one that all ranks reported."""
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
