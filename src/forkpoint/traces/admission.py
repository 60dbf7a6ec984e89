"""Which of the dumps belong to the run that is judged. A file is set aside only on proof, which the report states.

Proofs that two dumps come from different runs:

- they state different worlds, or come from different recorders (NCCL's and gloo's number their calls separately);
- their folders are named after different attempts (`attempt_0`, `attempt_1`, as torchrun names them);
- their entries lie further apart in time than the longest timeout of an op: no rank runs that long without its peers;
- sequence numbers run backwards in time: one rank had finished seq 500 before another issued seq 3 of the same group, or a rank
  issued seq 3 a second time after all that an older dump of it holds;
- they were started from different scripts and have no call in common;
- they belong to one rank and hold different calls in the same slot.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np
from msgspec import Struct

from forkpoint.model.capture import OF_ANOTHER_RUN, SetAside
from forkpoint.model.entries import Tables
from forkpoint.model.op import SYNCHRONISING, Ints, Tokens
from forkpoint.model.records import GUESSED_WORLD
from forkpoint.model.trace import RankTrace
from forkpoint.model.traces import Traces

_NS = 1_000_000_000
_NS_PER_MS = 1_000_000
_UNKNOWN_TIMEOUT_MS = 1_800_000
"""For dumps that do not state a timeout: torch's longest default (30 minutes, before torch 2.2)."""
CLOCKS_APART_NS = 10 * _NS
"""Clocks of two hosts may differ by this much; only a longer time difference proves an order."""
_OUTSTANDING = 16
"""Calls of one group that a program can have issued without waiting for them: more than gradients in buckets, whose calls gloo
makes one by one.
"""
_ATTEMPT = re.compile(r"(?:^|/)attempt_(\d{1,6})(?=/)")


_NOT_COUNTED: Mapping[int, int] = {}


class Choice(Struct, frozen=True):
    """The user's options for which files to judge. They override the proofs."""

    use: frozenset[str] = frozenset()
    """Files that are judged in any case."""
    everything: bool = False
    """Set aside only dumps of another recorder, and second dumps of a rank."""
    attempt: int | None = None
    """The run to judge, numbered from 0 in order of time."""


ADMIT_BY_PROOF = Choice()


def attempt_of(path: str) -> tuple[int, ...]:
    """The attempts in the directory names of a path: torchrun's restarts below `forkpoint run`'s retries."""
    return tuple(int(number) for number in _ATTEMPT.findall(path))


def admit(traces: Traces, tables: Tables, choice: Choice = ADMIT_BY_PROOF) -> tuple[Traces, tuple[SetAside, ...]]:
    """The traces of the run that is judged, one per rank; and the files that were set aside, with reasons."""
    admission = _Admission(_by_rank_and_file(traces), tables, choice)
    admission.keep_one_recorder()
    if not choice.everything:
        admission.keep_one_world()
        admission.keep_one_run()
        admission.keep_one_program()
    admission.keep_one_per_rank()
    return admission.kept, tuple(admission.set_aside)


def _by_rank_and_file(traces: Traces) -> Traces:
    """File names are compared only for ranks with several dumps: loading 100,000 names is slow."""
    kept = traces.take(np.argsort(traces.ranks, kind="stable"))
    order = np.arange(len(kept))
    for copies in _copies(kept):
        named = [(kept[at].file, at) for at in copies.tolist()]
        order[copies] = [at for _, at in sorted(named)]
    return kept.take(order)


def _copies(traces: Traces) -> list[Ints]:
    """Indexes of the dumps of each rank that has several."""
    _, first, counts = np.unique(traces.ranks, return_index=True, return_counts=True)
    return [np.arange(at, at + count) for at, count in zip(first.tolist(), counts.tolist(), strict=True) if count > 1]


class _Admission:
    def __init__(self, traces: Traces, tables: Tables, choice: Choice) -> None:
        self.kept = traces
        self.set_aside: list[SetAside] = []
        self._tables = tables
        self._choice = choice

    def _put(self, aside: Iterable[tuple[int, str]], behind: Mapping[int, int] = _NOT_COUNTED) -> None:
        """Sets dumps aside, by index, each with its reason. `behind`: by how many calls the kept dump of the same rank goes
        further.
        """
        left = np.ones(len(self.kept), np.bool_)
        for at, why in aside:
            trace = self.kept[at]
            if trace.file not in self._choice.use:
                left[at] = False
                self.set_aside.append(SetAside(trace.file, trace.rank, why, behind.get(at, 0)))
        self.kept = self.kept if left.all() else self.kept.take(left)

    def keep_one_recorder(self) -> None:
        column, last = self.kept.heads["comm_lib"], self.kept.heads["last_ns"]
        unnamed = [key for key in sorted(set(column.tolist())) if not self.kept.tables.text(key)]
        named = ~np.isin(column, unnamed)
        main = _main(column[named], last[named])
        if main is not None:
            others = np.flatnonzero(named & (column != main)).tolist()
            why = f"the others are from {self.kept.tables.text(main)}, and the two recorders number calls separately"
            self._put([(at, f"a dump from {self.kept[at].comm_lib}: {why}") for at in others])

    def keep_one_world(self) -> None:
        column = self.kept.heads["world"]
        stated = (column != 0) & ((self.kept.heads["flags"] & GUESSED_WORLD) == 0)
        if not stated.any():
            return
        main = _most_common(column[stated], self.kept.heads["last_ns"][stated])
        members = self.kept.tables.members(main)
        belongs = (~stated | (column == main)) & np.isin(self.kept.ranks, members)
        self._put([(at, _other_world(self.kept[at], len(members))) for at in np.flatnonzero(~belongs).tolist()])

    def keep_one_run(self) -> None:
        runs = _find_runs(self.kept)
        if len(runs) < 2:
            return
        main = _choose_run(runs, self.kept, self._choice.attempt)
        others = [run for run in runs if run is not main]
        self._put([(at, _other_run(at, main, self.kept)) for run in others for at in run.tolist()])

    def keep_one_program(self) -> None:
        column = self.kept.heads["script"]
        known = column != 0
        main = _main(column[known], self.kept.heads["last_ns"][known])
        if main is None:
            return
        peers = self.kept.take(column == main)
        why = f"the others from {self.kept.tables.text(main)}, and no call is the same: it is from another program"
        others = [at for at in np.flatnonzero(known & (column != main)).tolist() if self._agrees_with_none(at, peers)]
        self._put([(at, f"started from {self.kept[at].script}, {why}") for at in others])

    def _agrees_with_none(self, at: int, peers: Traces) -> bool:
        compared = [_compare(self.kept[at], peer, self._tables) for peer in peers if peer.rank != self.kept[at].rank]
        return any(differ for _, differ in compared) and not any(equal for equal, _ in compared)

    def keep_one_per_rank(self) -> None:
        found: list[tuple[int, str]] = []
        behind: dict[int, int] = {}
        for copies in _copies(self.kept):
            aside = self._choose(copies.tolist())
            used = [at for at in copies.tolist() if at not in dict(aside)]
            behind |= {at: _calls_between(self.kept[at], self.kept[one]) for at, _ in aside for one in used}
            found += aside
        self._put(found, behind)

    def _choose(self, copies: list[int]) -> list[tuple[int, str]]:
        """Which of one rank's dumps to set aside, with reasons."""
        dumps = {at: self.kept[at] for at in copies}
        wanted = [at for at, t in dumps.items() if t.file in self._choice.use]
        newest = (wanted or [max(copies, key=lambda at: (dumps[at].last_ns, dumps[at].entries, dumps[at].file))])[0]
        rest = [at for at in copies if at != newest]
        agree = not any(_compare(dumps[newest], dumps[at], self._tables)[1] for at in rest)
        rank, used = dumps[newest].rank, dumps[newest].file
        if agree or wanted or self._choice.everything:
            return [(at, f"a second, older or equal dump of rank {rank}; {used} is used") for at in rest]
        names = ", ".join(t.file for t in dumps.values())
        return [
            (at, f"{names} all claim rank {rank} and hold different calls; say which with --use FILE") for at in copies
        ]


def _calls_between(older: RankTrace, newer: RankTrace) -> int:
    reached = {group.key: group.collectives.last.seq for group in older.groups if group.collectives}
    return sum(max(0, g.collectives.last.seq - reached.get(g.key, 0)) for g in newer.groups if g.collectives)


def _other_world(trace: RankTrace, size: int) -> str:
    other = f"{len(trace.world)} ranks" if trace.world else f"rank {trace.rank}"
    return f"from another job ({other}; this one has {size} ranks)"


def _find_runs(traces: Traces) -> list[Ints]:
    """Dumps grouped into runs, in order of time: separate only if something proves it. Dumps without entries have no times and
    belong to no run.
    """
    first, last = traces.heads["first_ns"], traces.heads["last_ns"]
    timed = np.flatnonzero(first)
    order = timed[np.lexsort((last[timed], first[timed]))]
    if not order.size:
        return []
    labels = [attempt_of(trace.file) for trace in traces.take(order)] if _are_labelled(traces) else []
    if first[order[-1]] <= last[order].min() and len(set(labels)) < 2:
        return [order]  # all overlap, as in nearly every job
    by_label = [order[[label == one for label in labels]] for one in sorted(set(labels))] or [order]
    longest = _longest_timeout(traces) * _NS_PER_MS
    apart = [part for run in by_label for part in _split_by_time(run, first, last, longest)]
    again = [part for run in apart for part in _split_by_repetition(run, traces)]
    return [part for run in again for part in _split_by_restart(run, traces)]


def _are_labelled(traces: Traces) -> bool:
    return any(_ATTEMPT.search(traces[at].file) for at in (0, len(traces) - 1))


def _split_by_time(run: Ints, first: Ints, last: Ints, longest: int) -> list[Ints]:
    apart = first[run][1:] - np.maximum.accumulate(last[run])[:-1] > longest
    return np.split(run, np.flatnonzero(apart) + 1)


def _longest_timeout(traces: Traces) -> int:
    """Milliseconds."""
    per_trace = (_timeouts(trace) for trace in traces)
    return max((ms for timeouts in per_trace for ms in timeouts), default=0) or _UNKNOWN_TIMEOUT_MS


def _timeouts(trace: RankTrace) -> Iterator[int]:
    tracks = (*(g.collectives for g in trace.groups), *(c.messages for c in trace.channels))
    return (track.last.timeout_ms for track in tracks if track)


def _split_by_repetition(run: Ints, traces: Traces) -> list[Ints]:
    """Two dumps of one rank, of which the newer starts with numbers that the older has: what starts after the older one's last
    entry is from the newer run.
    """
    first, last, ranks = traces.heads["first_ns"], traces.heads["last_ns"], traces.ranks
    copies = [run[ranks[run] == rank] for rank in np.unique(ranks[run]).tolist()]
    cuts = sorted(
        int(last[older])
        for dumps in copies
        for older, newer in pairwise(dumps[np.argsort(first[dumps])].tolist())
        if last[older] < first[newer] and _numbers_repeat(traces[older], traces[newer])
    )
    return [part for part in np.split(run, np.searchsorted(first[run], cuts, side="right")) if part.size]


def _numbers_repeat(older: RankTrace, newer: RankTrace) -> bool:
    reached = {group.key: group.collectives.last.seq for group in older.groups if group.collectives}
    return any(g.collectives and g.key in reached and g.collectives.first_seq <= reached[g.key] for g in newer.groups)


def _split_by_restart(run: Ints, traces: Traces) -> list[Ints]:
    """When one member has finished a synchronising op, every member has issued it. A rank that issues it later is from a new
    run.
    """
    parts: list[list[int]] = []
    finished: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at in run.tolist():
        trace = traces[at]
        if not parts or _begins_anew(trace, finished):
            parts.append([])
            finished = {}
        parts[-1].append(at)
        for group in trace.groups:
            known = group.members or group.desc == "default_pg"  # gloo does not record who belongs to other groups
            done = group.collectives.last_done if group.collectives and known else None
            if done and all(s.op in SYNCHRONISING for s in done.signatures):
                # gloo does not record when a call was done; calls far behind the last one were done before that was made.
                seq, ns = (
                    (done.seq, done.completed_ns) if done.completed_ns else (done.seq - _OUTSTANDING, trace.last_ns)
                )
                finished.setdefault(group.key, []).append((seq, ns))
    return [np.array(part) for part in parts]


def _begins_anew(trace: RankTrace, finished: dict[tuple[int, int], list[tuple[int, int]]]) -> bool:
    began = trace.first_ns - CLOCKS_APART_NS
    firsts = {group.key: group.collectives.first_seq for group in trace.groups if group.collectives}
    return any(seq >= first and ns < began for key, first in firsts.items() for seq, ns in finished.get(key, ()))


def _choose_run(runs: list[Ints], traces: Traces, attempt: int | None) -> Ints:
    """The first run with dumps of many ranks: later failures follow from it. A stray file is not a run."""
    if attempt is not None:
        return runs[min(attempt, len(runs) - 1)]
    sizes = [len(np.unique(traces.ranks[run])) for run in runs]
    return next(run for run, size in zip(runs, sizes, strict=True) if 2 * size > max(sizes))


def _other_run(at: int, main: Ints, traces: Traces) -> str:
    own, judged = attempt_of(traces[at].file), attempt_of(traces[int(main[0])].file)
    if own and own != judged:
        return f"from attempt {own[-1]}; another attempt is judged (--attempt)"
    first, last = traces.heads["first_ns"], traces.heads["last_ns"]
    before = int(first[main].min()) - int(last[at])
    after = int(first[at]) - int(last[main].max())
    if max(before, after) <= _longest_timeout(traces) * _NS_PER_MS:
        return f"{OF_ANOTHER_RUN}: sequence numbers begin again between it and the judged dumps"
    which = "end {} before" if before > 0 else "begin {} after"
    apart = f"{max(before, after) / _NS:.1f} s"
    return f"{OF_ANOTHER_RUN}: its entries {which.format(apart)} the judged ones"


def _compare(one: RankTrace, other: RankTrace, tables: Tables) -> tuple[int, int]:
    """How many of the slots that both dumps hold have the same call, and how many do not."""
    groups = {(g.name, g.desc, g.members): g.collectives for g in other.groups if g.collectives}
    equal = differ = 0
    for group in one.groups:
        theirs, ours = groups.get((group.name, group.desc, group.members)), group.collectives
        if ours is None or theirs is None:
            continue
        tokens = _tokens(ours.blocks, tables)
        both = [tokens[seq] == token for seq, token in _tokens(theirs.blocks, tables).items() if seq in tokens]
        equal += sum(both)
        differ += len(both) - sum(both)
    return equal, differ


def _tokens(blocks: Iterable[int], tables: Tables) -> dict[int, int]:
    held = [tables.blocks[key] for key in blocks]
    return {int(s): int(m) for block in held for s, m in zip(block.seqs, block.match, strict=True)}


def _main(keys: Tokens, last_ns: Ints) -> int | None:
    """The most common key; None: all keys are the same."""
    return _most_common(keys, last_ns) if (keys != keys[:1]).any() else None


def _most_common(keys: Tokens, last_ns: Ints) -> int:
    """Ties go to the key with the latest entry, so that file order never decides."""
    found, counts = np.unique(keys, return_counts=True)
    often = found[counts == counts.max()].tolist()
    return max(often, key=lambda key: int(last_ns[keys == key].max()))
