"""Which of the dumps belong together: another job's file, a stale one or a second copy must not be compared."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from forkpoint.model.capture import Problem
from forkpoint.model.trace import Tables
from forkpoint.packed.trace import PackedRecord, PackedTrace
from forkpoint.packed.traces import PackedTraces

_T = TypeVar("_T")


def separate(traces: PackedTraces, tables: Tables) -> tuple[PackedTraces, tuple[Problem, ...]]:
    """The traces of the job that most dumps belong to, one per rank, and what was left out and why."""
    kept = PackedTraces(sorted(traces.records, key=lambda record: (record.rank, record.file)), traces.tables)
    problems: list[Problem] = []
    for keep in (_same_library, _same_world, _same_time, _same_script, _one_per_rank):
        kept = keep(kept, tables, problems)
    return kept, tuple(problems)


def _split(traces: PackedTraces, belongs: Callable[[PackedTrace], bool]) -> tuple[PackedTraces, PackedTraces]:
    """Those that belong, and the others."""
    kept: list[PackedRecord] = []
    others: list[PackedRecord] = []
    for record, trace in zip(traces.records, traces, strict=True):
        (kept if belongs(trace) else others).append(record)
    return PackedTraces(kept, traces.tables), PackedTraces(others, traces.tables)


def _same_library(traces: PackedTraces, _tables: Tables, problems: list[Problem]) -> PackedTraces:
    """NCCL and gloo have recorders of their own: their dumps cannot be laid side by side, even within one job."""
    libraries = Counter(t.comm_lib for t in traces if t.comm_lib)
    if len(libraries) < 2:
        return traces
    main = _most_common(libraries, lambda lib: max(t.last_ns for t in traces if t.comm_lib == lib))
    kept, others = _split(traces, lambda t: t.comm_lib in ("", main))
    problems += [Problem(t.file, f"a dump of {t.comm_lib}, the others are of {main}; left out") for t in others]
    return kept


def _same_world(traces: PackedTraces, _tables: Tables, problems: list[Problem]) -> PackedTraces:
    worlds = Counter(t.world_key for t in traces if t.world_key)
    if not worlds:
        return traces
    main = _most_common(worlds, lambda w: max(t.last_ns for t in traces if t.world_key == w))
    ranks = frozenset(traces.tables.members(main))
    kept, others = _split(traces, lambda t: t.world_key in (0, main) and t.rank in ranks)
    for t in others:
        size = f"{len(t.world)} ranks" if t.world else f"rank {t.rank}"
        problems.append(Problem(t.file, f"of another job ({size}; this one has {len(ranks)} ranks); left out"))
    return kept


def _same_time(traces: PackedTraces, _tables: Tables, problems: list[Problem]) -> PackedTraces:
    """Ranks of one run overlap in time: nobody runs on for long after a peer has stopped."""
    spans = sorted((t.first_ns, t.last_ns, index) for index, t in enumerate(traces) if t.first_ns)
    runs: list[list[int]] = []
    end = 0
    for first_ns, last_ns, index in spans:
        if not runs or first_ns > end:
            runs.append([])
            end = last_ns
        runs[-1].append(index)
        end = max(end, last_ns)
    if len(runs) < 2:
        return traces
    main = max(runs, key=lambda run: (len({traces.records[i].rank for i in run}), traces[run[-1]].last_ns))
    begin = traces[main[0]].first_ns
    stale = {index for run in runs if run is not main for index in run}
    for index in sorted(stale):
        when = "before" if traces[index].last_ns < begin else "after"
        text = f"all its entries are from {when} the other ranks' run: a stale file; left out"
        problems.append(Problem(traces[index].file, text))
    return PackedTraces((r for i, r in enumerate(traces.records) if i not in stale), traces.tables)


def _same_script(traces: PackedTraces, tables: Tables, problems: list[Problem]) -> PackedTraces:
    """Another script alone is no proof (jobs with several roles have several), but a member agrees with its peers."""
    scripts = Counter(t.script for t in traces if t.script)
    if len(scripts) < 2:
        return traces
    main = _most_common(scripts, lambda s: max(t.last_ns for t in traces if t.script == s))
    peers, _ = _split(traces, lambda t: t.script == main)
    kept, others = _split(
        traces,
        lambda t: t.script in (None, main) or all(_agree(t, peer, tables) for peer in peers if peer.rank != t.rank),
    )
    problems += [
        Problem(t.file, f"started from {t.script}, the others from {main}: of another job; left out") for t in others
    ]
    return kept


def _one_per_rank(traces: PackedTraces, tables: Tables, problems: list[Problem]) -> PackedTraces:
    counts = Counter(record.rank for record in traces.records)
    left_out: set[int] = set()
    for rank in (rank for rank, count in counts.items() if count > 1):
        copies = [(index, traces[index]) for index, record in enumerate(traces.records) if record.rank == rank]
        left_out |= _choose(rank, copies, tables, problems)
    return PackedTraces((r for i, r in enumerate(traces.records) if i not in left_out), traces.tables)


def _choose(rank: int, copies: list[tuple[int, PackedTrace]], tables: Tables, problems: list[Problem]) -> set[int]:
    """Which of the dumps of one rank are left out."""
    at, newest = max(copies, key=lambda copy: (copy[1].last_ns, copy[1].entries, copy[1].file))
    rest = [(index, t) for index, t in copies if index != at]
    if all(_agree(newest, t, tables) for _, t in rest):
        text = f"a second, older or equal dump of rank {rank}; {newest.file} is used"
        problems += [Problem(t.file, text) for _, t in rest]
        return {index for index, _ in rest}
    names = ", ".join(t.file for _, t in copies)
    problems += [Problem(t.file, f"{names} all claim rank {rank} and disagree; none is used") for _, t in copies]
    return {index for index, _ in copies}


def _agree(one: PackedTrace, other: PackedTrace, tables: Tables) -> bool:
    """No slot that both hold differs in what was called."""
    groups = {(g.name, g.desc, g.members): g.collectives for g in other.groups if g.collectives}
    for group in one.groups:
        theirs, ours = groups.get((group.name, group.desc, group.members)), group.collectives
        if ours is None or theirs is None:
            continue
        tokens = _tokens(ours.blocks, tables)
        if any(tokens.get(seq, token) != token for seq, token in _tokens(theirs.blocks, tables).items()):
            return False
    return True


def _tokens(blocks: Iterable[int], tables: Tables) -> dict[int, int]:
    held = [tables.blocks[key] for key in blocks]
    return {int(s): int(m) for block in held for s, m in zip(block.seqs, block.match, strict=True)}


def _most_common(counts: Counter[_T], latest: Callable[[_T], int]) -> _T:
    """The most frequent; among equals the one seen last in time, so that file order never decides."""
    return max(counts, key=lambda value: (counts[value], latest(value)))
