"""Which of the dumps belong together: another job's file, a stale one or a second copy must not be compared."""

from collections.abc import Iterable

import numpy as np

from forkpoint.model.capture import Problem
from forkpoint.model.trace import Ints, Tables, Tokens
from forkpoint.packed.trace import PackedTrace
from forkpoint.packed.traces import PackedTraces


def separate(traces: PackedTraces, tables: Tables) -> tuple[PackedTraces, tuple[Problem, ...]]:
    """The traces of the job that most dumps belong to, one per rank, and what was left out and why."""
    kept = _by_rank_and_file(traces)
    problems: list[Problem] = []
    for keep in (_same_library, _same_world, _same_time, _same_script, _one_per_rank):
        kept = keep(kept, tables, problems)
    return kept, tuple(problems)


def _by_rank_and_file(traces: PackedTraces) -> PackedTraces:
    """Files are compared where one rank has several: there may be 100,000 names."""
    kept = traces.take(np.argsort(traces.ranks, kind="stable"))
    order = np.arange(len(kept))
    for copies in _copies(kept):
        named = [(kept[at].file, at) for at in copies.tolist()]
        order[copies] = [at for _, at in sorted(named)]
    return kept.take(order)


def _copies(traces: PackedTraces) -> list[Ints]:
    """Indexes of the dumps of each rank that has several."""
    _, first, counts = np.unique(traces.ranks, return_index=True, return_counts=True)
    return [np.arange(at, at + count) for at, count in zip(first.tolist(), counts.tolist(), strict=True) if count > 1]


def _same_library(traces: PackedTraces, _tables: Tables, problems: list[Problem]) -> PackedTraces:
    """NCCL and gloo have recorders of their own: their dumps cannot be laid side by side, even within one job."""
    column = traces.heads["comm_lib"]
    unnamed = [key for key in np.unique(column).tolist() if not traces.tables.text(key)]
    named = ~np.isin(column, unnamed)
    main = _main(column[named], traces.heads["last_ns"][named])
    if main is None:
        return traces
    belongs = ~named | (column == main)
    text = f"the others are of {traces.tables.text(main)}; left out"
    problems += [Problem(t.file, f"a dump of {t.comm_lib}, {text}") for t in traces.take(~belongs)]
    return traces.take(belongs)


def _same_world(traces: PackedTraces, _tables: Tables, problems: list[Problem]) -> PackedTraces:
    column = traces.heads["world"]
    stated = column != 0
    if not stated.any():
        return traces
    main = _most_common(column[stated], traces.heads["last_ns"][stated])
    members = traces.tables.members(main)
    belongs = (~stated | (column == main)) & np.isin(traces.ranks, members)
    for t in traces.take(~belongs):
        size = f"{len(t.world)} ranks" if t.world else f"rank {t.rank}"
        problems.append(Problem(t.file, f"of another job ({size}; this one has {len(members)} ranks); left out"))
    return traces.take(belongs)


def _same_time(traces: PackedTraces, _tables: Tables, problems: list[Problem]) -> PackedTraces:
    """Ranks of one run overlap in time: nobody runs on for long after a peer has stopped."""
    runs = _runs(traces.heads["first_ns"], traces.heads["last_ns"])
    if len(runs) < 2:
        return traces
    first, last = traces.heads["first_ns"], traces.heads["last_ns"]
    main = max(runs, key=lambda run: (len(np.unique(traces.ranks[run])), int(last[run[-1]])))
    begin = first[main[0]]
    stale = np.sort(np.concatenate([run for run in runs if run is not main]))
    for at, t in zip(stale.tolist(), traces.take(stale), strict=True):
        when = "before" if last[at] < begin else "after"
        text = f"all its entries are from {when} the other ranks' run: a stale file; left out"
        problems.append(Problem(t.file, text))
    return traces.take(np.delete(np.arange(len(traces)), stale))


def _runs(first_ns: Ints, last_ns: Ints) -> list[Ints]:
    """Dumps with entries whose times overlap, one with the next, in the order of time."""
    timed = np.flatnonzero(first_ns)
    order = timed[np.lexsort((last_ns[timed], first_ns[timed]))]
    apart = first_ns[order][1:] > np.maximum.accumulate(last_ns[order])[:-1]
    return np.split(order, np.flatnonzero(apart) + 1) if len(order) else []


def _same_script(traces: PackedTraces, tables: Tables, problems: list[Problem]) -> PackedTraces:
    """Another script alone is no proof (jobs with several roles have several), but a member agrees with its peers."""
    column = traces.heads["script"]
    known = column != 0
    main = _main(column[known], traces.heads["last_ns"][known])
    if main is None:
        return traces
    peers = traces.take(column == main)
    belongs = ~known | (column == main)
    for at in np.flatnonzero(~belongs).tolist():
        belongs[at] = all(_agree(traces[at], peer, tables) for peer in peers if peer.rank != traces[at].rank)
    text = f"the others from {traces.tables.text(main)}: of another job; left out"
    problems += [Problem(t.file, f"started from {t.script}, {text}") for t in traces.take(~belongs)]
    return traces.take(belongs)


def _one_per_rank(traces: PackedTraces, tables: Tables, problems: list[Problem]) -> PackedTraces:
    left_out: set[int] = set()
    for copies in _copies(traces):
        found = [(at, traces[at]) for at in copies.tolist()]
        left_out |= _choose(found[0][1].rank, found, tables, problems)
    return traces.take(np.delete(np.arange(len(traces)), sorted(left_out)))


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


def _main(keys: Tokens, last_ns: Ints) -> int | None:
    """None: they are all the same."""
    return _most_common(keys, last_ns) if len(np.unique(keys)) > 1 else None


def _most_common(keys: Tokens, last_ns: Ints) -> int:
    """The most frequent; among equals the one seen last in time, so that file order never decides."""
    found, counts = np.unique(keys, return_counts=True)
    often = found[counts == counts.max()].tolist()
    return max(often, key=lambda key: int(last_ns[keys == key].max()))
