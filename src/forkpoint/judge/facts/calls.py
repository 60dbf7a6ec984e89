"""Compares recorded calls: same line or different lines, reordered calls, arguments that dumps do not record, who came
late, the last slot.
"""

import re
from collections import Counter
from itertools import pairwise

import numpy as np

from forkpoint.diverge.cohorts import build_divergence, frontier_op
from forkpoint.diverge.slots import SlotSequence, sequence
from forkpoint.judge.facts.cite import events_of, group_of, names_group
from forkpoint.judge.facts.symptom import hang_is_shown
from forkpoint.model.frames import in_side_thread, in_two_threads, is_made_by_torch, user_frames
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import SYNCHRONISING, Frame, OpState, Stack, Tokens, numel
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import RankTrace, Track
from forkpoint.model.world import ProcessGroup

# ---------------------------------------------------------------------------------------------------------------------
# Comparing the calls of two sides of a divergence: the same line of code, or the same ops in another order?

REORDER_WINDOW = 64
"""How many ops are searched for the same calls in another order: more than one loop over parameters or keys needs."""


def issuing(divergence: Divergence) -> tuple[Cohort, ...]:
    """Cohorts that issued an op in the slot."""
    return tuple(c for c in divergence.cohorts if c.op is not None)


def pairs_wrongly(divergence: Divergence) -> bool:
    """Calls of both sides meet at the slot of a shift, so each is paired with the wrong one. Otherwise one side just
    waits.
    """
    return len(issuing(divergence)) > 1


def same_op(divergence: Divergence) -> bool:
    return len({c.op for c in issuing(divergence)}) == 1


def same_call_site(divergence: Divergence) -> bool | None:
    """Whether all sides called from the same user lines. None if no stacks tell and no thread differs either."""
    stacks = [c.stack for c in issuing(divergence)]
    if any(s is None for s in stacks):
        # DDP's reducer issues from the autograd thread; names of other threads differ by chance.
        from_backward = {(c.thread or "").startswith("pt_autograd") for c in issuing(divergence)}
        return False if len(from_backward) > 1 else None
    return len({(tuple((f.filename, f.line) for f in user_frames(s)), bool(s)) for s in stacks}) == 1


def is_of_two_threads(divergence: Divergence, incident: Incident) -> bool:
    """One side's call comes from a thread that the program started, the other side's from another thread, and ranks of
    both sides have issued the former from that place: two threads share the group, and nothing orders their calls.
    """
    if not in_two_threads(c.stack for c in issuing(divergence)):
        return False
    side = [c for c in issuing(divergence) if c.stack and in_side_thread(c.stack)]
    return any(_have_called(_call_site(c.stack), set(divergence.group.ranks) - set(c.ranks), incident) for c in side)


def shares_group_with_thread(divergence: Divergence, incident: Incident) -> bool:
    """In this slot NCCL calls come from a thread that the program started, and others in the same group from the main
    thread. NCCL needs one launch order per communicator, and two threads have none, whatever numbers their calls
    get.
    """
    timeline, stacks = incident.timeline, [c.stack for c in issuing(divergence) if c.stack]
    by_nccl = all(timeline.traces[r].comm_lib.startswith("nccl") for side in divergence.sides for r in side)
    if not by_nccl or not stacks or divergence.channel is not None:
        return False
    made = {int(key) for rank in divergence.sides[0] for key in _made_in(timeline.traces[rank], divergence.group)}
    others = [stack for key in made if (stack := timeline.tables.stacks.get(key))]
    return in_two_threads([*stacks, *others])


def _made_in(trace: RankTrace, group: ProcessGroup) -> Tokens:
    """The lines from which the recent calls of a group were made."""
    index = [n for n, one in enumerate(trace.groups) if (one.name, one.desc) == (group.name, group.desc)]
    return trace.recent_stacks[np.isin(trace.recent_groups, index)]


def _have_called(site: tuple[Frame, ...], ranks: set[int], incident: Incident) -> bool:
    timeline = incident.timeline
    keys = {int(key) for rank in ranks if rank in timeline.traces for key in timeline.traces[rank].recent_stacks}
    issued = (timeline.tables.stacks.get(key) for key in keys)
    standing = (stack for live in incident.capture.stacks if live.rank in ranks for _, stack in live.others)
    return bool(site) and any(_call_site(stack) == site for stack in (*issued, *standing))


def _call_site(stack: Stack | None) -> tuple[Frame, ...]:
    """The program's own line; all frames if none is the program's, as in a library's thread (an asynchronous
    checkpoint).
    """
    return user_frames(stack)[:1] or tuple(stack or ())


# ---------------------------------------------------------------------------------------------------------------------
# Two sides made different calls, and some members have no dump: the timeout in their log names their call.

_LETTERS = re.compile(r"[^a-z]")


def find_odd_by_words(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """The odd ranks, counting also members whose log names a call that one side made at that number and the other did
    not.
    """
    if divergence.odd or divergence.channel or len(divergence.sides) != 2 or divergence.how is not PartingKind.METADATA:
        return ()
    group = group_of(divergence, incident)
    votes = [len(side) for side in divergence.sides]
    for rank in divergence.unknown:
        told = [e for e in events_of(rank, incident, LogKind.WATCHDOG_TIMEOUT) if names_group(e, divergence.group)]
        made = [any(_made(e, side, group) for e in told) for side in divergence.sides]
        if made[0] != made[1]:
            votes[made.index(True)] += 1
    return outvoted_side(votes, divergence, incident)


def outvoted_side(votes: list[int], divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """The side, of two, that more than half of all members are known to contradict."""
    members = len(divergence.group.ranks) if divergence.group.declared else len(incident.timeline.world)
    unseen = 0 if divergence.group.declared else incident.timeline.unseen
    usual = votes.index(max(votes))
    return divergence.sides[1 - usual] if 2 * votes[usual] > members + unseen else ()


def _made(event: LogEvent, side: tuple[int, ...], group: GroupTimeline) -> bool:
    """A rank of this side made the call that the line names: same number, operation and size."""
    work = event.work
    tracks = [track for rank in side if (track := group.track(rank))]
    ends = [op for track in tracks for op in (track.first_active, track.last_done, track.last) if op]
    made = [(op.seq, _LETTERS.sub("", s.op), numel(s.input_sizes)) for op in ends for s in op.signatures]
    return work is not None and (work.seq, _LETTERS.sub("", work.op.lower()), work.numel_in) in made


# ---------------------------------------------------------------------------------------------------------------------
# One decision can part ranks in several groups of the same kind: the rows of a mesh, the replicas of each shard.


def find_beside(divergence: Divergence, incident: Incident) -> tuple[Divergence, ...]:
    """Divergences in other groups of the same kind, at the same number, with different calls on the two sides. The
    number may differ if the decision was clearly the same: both sides made the same two calls and are shifted by the
    same count.
    """
    if divergence.how is not PartingKind.METADATA or divergence.channel is not None:
        return ()
    return tuple(
        d
        for d in incident.divergences
        if d.how is PartingKind.METADATA and d.channel is None and d.group != divergence.group
        if d.group.desc == divergence.group.desc
        if d.seq == divergence.seq or _parts_alike(d, divergence)
    )


def _parts_alike(one: Divergence, other: Divergence) -> bool:
    """Pipeline stages make different numbers of calls, so one decision shows up at different numbers in their groups."""
    shifts = [d.shift.by if d.shift and d.odd else None for d in (one, other)]
    usual = [{call for call, ranks in _calls_of(d).items() if ranks.isdisjoint(d.odd)} for d in (one, other)]
    odd = [{call for call, ranks in _calls_of(d).items() if ranks <= set(d.odd)} for d in (one, other)]
    return None not in shifts and shifts[0] == shifts[1] and usual[0] == usual[1] and odd[0] == odd[1]


def find_odd_in_all(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """The odd ranks, counted over all groups in which ranks part there. A call that is odd in one group is odd in the
    others too, even if dumps are missing there. If each of the two calls is odd somewhere, every rank decided for
    itself and nobody is odd.
    """
    every = (divergence, *find_beside(divergence, incident))
    odd_calls = {call for d in every for call, ranks in _calls_of(d).items() if d.odd and ranks <= set(d.odd)}
    usual = {call for d in every for call, ranks in _calls_of(d).items() if d.odd and ranks.isdisjoint(d.odd)}
    if odd_calls & usual:
        return ()
    ranks = {r for d in every for call, made_by in _calls_of(d).items() if call in odd_calls for r in made_by}
    return tuple(sorted(ranks)) if ranks else divergence.odd


def with_beside(side: tuple[int, ...], divergence: Divergence | None, incident: Incident) -> tuple[int, ...]:
    """The ranks on one side of a divergence, plus those that did the same in the other groups."""
    beside = find_beside(divergence, incident) if divergence else ()
    calls = (
        {call for call, ranks in _calls_of(divergence).items() if ranks & {*side}} if divergence and beside else set()
    )
    alike = {rank for d in beside for call, ranks in _calls_of(d).items() if call in calls for rank in ranks}
    return tuple(sorted({*side, *alike}))


def _calls_of(divergence: Divergence) -> dict[tuple[object, ...], set[int]]:
    """Who made each call, by kind and call site."""
    found: dict[tuple[object, ...], set[int]] = {}
    for cohort in issuing(divergence):
        found.setdefault((cohort.op, user_frames(cohort.stack)[:1]), set()).update(cohort.ranks)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Whether two sides made the same calls in another order.


def holds_past(divergence: Divergence, incident: Incident) -> bool:
    """Dumps of active ops alone show neither the ops before nor whether they were in order."""
    traces = incident.timeline.traces
    return not any(traces[rank].is_partial for side in divergence.sides for rank in side if rank in traces)


def is_reordered(divergence: Divergence, incident: Incident) -> bool:
    """From the slot on, both sides issued the same calls in another order.

    A call site that always issued one kind of op and now issues another is not a reordering: its arguments changed.
    """
    seq = divergence.first_visible_seq
    if divergence.channel is not None or seq is None or divergence.shift is not None:
        return False
    if any(c.stack is None for c in issuing(divergence)) or not holds_past(divergence, incident):
        return False  # without stacks only sizes can be compared, and those repeat
    group = group_of(divergence, incident)
    held = [_held(side[0], group, incident) for side in divergence.sides if side]
    if len(held) < 2 or any(h is None or not h.shows(seq) or _changed_arguments(h, seq) for h in held):
        return False
    tokens: list[list[int]] = [h.match[seq - h.first :][:REORDER_WINDOW].tolist() for h in held if h]
    longest = max(tokens, key=len)
    others = [t for t in tokens if t is not longest]
    return any(_permuted(longest, t) for t in others) and all(_is_part(t, longest) for t in others)


def may_be_reordered(divergence: Divergence, incident: Incident) -> bool:
    """One side's op is issued later by another side. There are too few ops to be sure, but the order may be what
    differs.
    """
    seq = divergence.first_visible_seq
    if divergence.channel is not None or seq is None:
        return False
    group = group_of(divergence, incident)
    held = [h for side in divergence.sides if side and (h := _held(side[0], group, incident)) and h.shows(seq)]
    if any(_changed_arguments(h, seq) for h in held):
        return False
    firsts = [int(h.match[seq - h.first]) for h in held]
    later = [set(h.match[seq - h.first + 1 :][:REORDER_WINDOW].tolist()) for h in held]
    return any(first in rest for i, first in enumerate(firsts) for j, rest in enumerate(later) if i != j)


def went_without(divergence: Divergence, own: Cohort, usual: Cohort, incident: Incident) -> bool:
    """In every round so far, the call that `own` makes in this slot came after the one that `usual` makes in it."""
    seq = divergence.first_visible_seq
    if divergence.channel is not None or seq is None or divergence.shift is not None:
        return False
    group = group_of(divergence, incident)
    held = [_held(cohort.ranks[0], group, incident) for cohort in (own, usual)]
    if any(h is None or not h.shows(seq) for h in held):
        return False
    mine, theirs = (h.calls[: seq - h.first + 1].tolist() for h in held if h)
    rounds = [at for at, call in enumerate(theirs) if call == theirs[-1]]
    return len(rounds) > 1 and all(mine[-1] in theirs[first + 1 : last] for first, last in pairwise(rounds))


def _held(rank: int, group: GroupTimeline, incident: Incident) -> SlotSequence | None:
    track = group.track(rank)
    return sequence(track, incident.timeline.tables) if track else None


def _changed_arguments(held: SlotSequence, seq: int) -> bool:
    """Before `seq`, its call site issued only one kind of op, several times."""
    at = seq - held.first
    earlier = held.match[:at][held.stack[:at] == held.stack[at]]
    return len(earlier) > 1 and len(set(earlier.tolist())) == 1


def _is_part(some: list[int], whole: list[int]) -> bool:
    """One side stopped earlier and issued only a part of the other's calls, and nothing else."""
    return Counter(some[: len(whole)]) <= Counter(whole)


def _permuted(one: list[int], other: list[int]) -> bool:
    """The first two or more ops on both sides are the same calls in another order."""
    return any(
        sorted(one[:length]) == sorted(other[:length]) and one[:length] != other[:length]
        for length in range(2, min(len(one), len(other)) + 1)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Arguments that no dump records, such as roots and all_to_all splits: where they may differ, and where they cannot.

_RECEIVED_ONCE = frozenset({"broadcast", "scatter"})
"""Every member but the root receives once, from one peer, and only then forwards the data."""


def may_differ_unseen(divergence: Divergence, incident: Incident) -> bool:
    """Members may have used different roots or splits in this slot, or in an earlier one that left data behind. Not if
    torch makes the call for a whole model.

    NCCL checks neither. A broadcast with two roots completes, and data that nobody received waits on the connection for
    the next op that uses it. If all ranks later completed the same call, it used the same connections and found them
    clean. gloo numbers its messages by call, so none is taken for another call's.
    """
    if any(c.op and _hides_arguments(c.op) and not is_made_by_torch(c.stack or ()) for c in divergence.cohorts):
        return True
    track = group_of(divergence, incident).track(divergence.sides[0][0])
    numbered = incident.timeline.traces[divergence.sides[0][0]].comm_lib == "gloo"
    if track is None or divergence.hang_seq is None or numbered:
        return False
    tables = incident.timeline.tables
    held = sequence(track, tables)
    if divergence.hang_seq < held.first:
        return True  # its numbers jump, so earlier ops are not known
    calls = held.match[: divergence.hang_seq - held.first + 1].tolist()
    by_torch = {key for key in set(held.stack.tolist()) if is_made_by_torch(tables.stacks.get(key) or ())}
    hiding = [
        at
        for at, call in enumerate(calls)
        if any(_hides_arguments(s.op) for s in tables.signatures.get(call, ())) and int(held.stack[at]) not in by_torch
    ]
    return bool(hiding) and calls[-1] not in calls[hiding[-1] + 1 : -1]


def find_two_roots(divergence: Divergence, incident: Incident) -> tuple[LogEvent, ...]:
    """Log lines of members that all wait to send in one rooted gloo op, if too few members are left to receive.

    With a single root, every unfinished send has its own member that has not received. gloo first waits to receive and
    last to send, so such a member would be in the slot and log that it waits to receive, unless nothing is known about
    it. If fewer members qualify than there are senders, there is more than one root.
    """
    if divergence.channel or not all(c.op in _RECEIVED_ONCE for c in divergence.cohorts if c.op):
        return ()
    waiting = [c for c in divergence.cohorts if c.op and c.state is not OpState.COMPLETED]
    stuck = [rank for cohort in waiting for rank in cohort.ranks]
    if not all(incident.timeline.traces[r].comm_lib == "gloo" for r in stuck) or not hang_is_shown(incident):
        return ()
    places = {_place(c.stack) for c in waiting if c.stack}
    words = [_waits_to_send(rank, places, incident) for rank in stuck]
    told = tuple(word for word in words if word)
    return told if len(told) == len(stuck) > _unaccounted(divergence, incident) else ()


def _hides_arguments(op: str) -> bool:
    return op not in SYNCHRONISING or op.startswith("all_to_all")


def _waits_to_send(rank: int, places: set[tuple[tuple[str, int], ...]], incident: Incident) -> LogEvent | None:
    """Its only timeout, located by the line that called the op."""
    words = events_of(rank, incident, LogKind.PEER_TIMEOUT)
    if len(words) != 1 or words[0].detail("direction") != "send" or {_place(words[0].stack)} != places:
        return None
    return words[0]


def _place(stack: Stack | None) -> tuple[tuple[str, int], ...]:
    return tuple((f.filename, f.line) for f in user_frames(stack))


def _unaccounted(divergence: Divergence, incident: Incident) -> int:
    """Possible members about which nothing is known here."""
    return len(divergence.unknown) + incident.timeline.unseen


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that came to a slot later than the timeout allows, measured so that clock offsets between hosts cancel out.

NS_PER_MS = 1_000_000


def late_ranks(divergence: Divergence, incident: Incident) -> dict[int, float]:
    """Rank -> seconds after its peers, for ranks that are later than the group's timeout. Needs the slot before as a
    reference.
    """
    if divergence.channel is not None or divergence.hang_seq is None:
        return {}
    group = group_of(divergence, incident)
    since: dict[int, int] = {}
    timeout_ms = 0
    for rank in group.traces:
        track = group.track(rank)
        pause = _pause_before(track, divergence.hang_seq) if track else None
        if track is not None and pause is not None:
            since[rank] = pause
            timeout_ms = max(timeout_ms, track.last.timeout_ms)
    if len(since) < 2 or not timeout_ms:
        return {}
    ordered = sorted(since.values())
    usual = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return {r: (took - usual) / 1e9 for r, took in since.items() if took - usual > timeout_ms * NS_PER_MS}


def _pause_before(track: Track, seq: int) -> int | None:
    """Time on this rank's own clock between issuing the slot before and issuing `seq`; None if it is not known any
    more.
    """
    op = frontier_op(track, seq)
    if op is not None:
        return op.since_previous_ns
    return track.longest_pause_ns if track.longest_pause_seq == seq else None


# ---------------------------------------------------------------------------------------------------------------------
# For failed ops that left nothing pending: gloo drops a failed op from its list as if it had finished.


def find_last_slot(kind: PartingKind, gone: tuple[int, ...], incident: Incident) -> Divergence | None:
    """The newest slot of all, if every member with a dump is in it; `gone` ranks must not be among them."""
    lasts = [(g, t.last) for g in incident.timeline.groups for r in g.traces if (t := g.track(r))]
    if not lasts:
        return None
    group = max(lasts, key=lambda item: item[1].created_ns)[0]
    seqs = {t.last_seq for r in group.traces if (t := group.track(r))}
    if len(seqs) != 1 or any(r in group.traces for r in gone):
        return None
    (seq,) = seqs
    others = tuple(group.traces)
    return build_divergence(kind, group, seq, incident.timeline, sides=(others,), hang=seq, unknown=gone)
