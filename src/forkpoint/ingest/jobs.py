"""Which of the dumps belong together: another job's file, a stale one or a second copy must not be compared."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from forkpoint.model.capture import Problem
from forkpoint.model.trace import RankTrace, Tables

_T = TypeVar("_T")


def separate(traces: Iterable[RankTrace], tables: Tables) -> tuple[tuple[RankTrace, ...], tuple[Problem, ...]]:
    """The traces of the job that most dumps belong to, one per rank, and what was left out and why."""
    kept = sorted(traces, key=lambda t: (t.rank, t.file))
    problems: list[Problem] = []
    for keep in (_same_library, _same_world, _same_time, _same_script, _one_per_rank):
        kept = keep(kept, tables, problems)
    return tuple(kept), tuple(problems)


def _same_library(traces: list[RankTrace], _tables: Tables, problems: list[Problem]) -> list[RankTrace]:
    """NCCL and gloo have recorders of their own: their dumps cannot be laid side by side, even within one job."""
    libraries = Counter(t.comm_lib for t in traces if t.comm_lib)
    if len(libraries) < 2:
        return traces
    main = _most_common(libraries, lambda lib: max(t.last_ns for t in traces if t.comm_lib == lib))
    kept = [t for t in traces if t.comm_lib in ("", main)]
    others = [t for t in traces if t not in kept]
    problems += [Problem(t.file, f"a dump of {t.comm_lib}, the others are of {main}; left out") for t in others]
    return kept


def _same_world(traces: list[RankTrace], _tables: Tables, problems: list[Problem]) -> list[RankTrace]:
    worlds = Counter(t.world for t in traces if t.world)
    if not worlds:
        return traces
    main = _most_common(worlds, lambda w: max(t.last_ns for t in traces if t.world == w))
    kept = [t for t in traces if (t.world is None or t.world == main) and t.rank in main]
    for t in traces:
        if t not in kept:
            size = f"{len(t.world)} ranks" if t.world else f"rank {t.rank}"
            problems.append(Problem(t.file, f"of another job ({size}; this one has {len(main)} ranks); left out"))
    return kept


def _same_time(traces: list[RankTrace], _tables: Tables, problems: list[Problem]) -> list[RankTrace]:
    """Ranks of one run overlap in time: nobody runs on for long after a peer has stopped."""
    runs: list[list[RankTrace]] = []
    for t in sorted((t for t in traces if t.first_ns), key=lambda t: t.first_ns):
        if runs and t.first_ns <= max(other.last_ns for other in runs[-1]):
            runs[-1].append(t)
        else:
            runs.append([t])
    if len(runs) < 2:
        return traces
    main = max(runs, key=lambda run: (len({t.rank for t in run}), run[-1].last_ns))
    stale = [t for run in runs if run is not main for t in run]
    for t in stale:
        when = "before" if t.last_ns < main[0].first_ns else "after"
        problems.append(
            Problem(t.file, f"all its entries are from {when} the other ranks' run: a stale file; left out")
        )
    return [t for t in traces if t not in stale]


def _same_script(traces: list[RankTrace], tables: Tables, problems: list[Problem]) -> list[RankTrace]:
    """Another script alone is no proof (jobs with several roles have several), but a member agrees with its peers."""
    scripts = Counter(t.script for t in traces if t.script)
    if len(scripts) < 2:
        return traces
    main = _most_common(scripts, lambda s: max(t.last_ns for t in traces if t.script == s))
    peers = [t for t in traces if t.script == main]
    kept: list[RankTrace] = []
    for t in traces:
        if t.script in (None, main) or all(_agree(t, peer, tables) for peer in peers if peer.rank != t.rank):
            kept.append(t)
        else:
            problems.append(
                Problem(t.file, f"started from {t.script}, the others from {main}: of another job; left out")
            )
    return kept


def _one_per_rank(traces: list[RankTrace], tables: Tables, problems: list[Problem]) -> list[RankTrace]:
    by_rank: dict[int, list[RankTrace]] = {}
    for t in traces:
        by_rank.setdefault(t.rank, []).append(t)
    kept: list[RankTrace] = []
    for rank, copies in by_rank.items():
        newest = max(copies, key=lambda t: (t.last_ns, t.entries, t.file))
        rest = [t for t in copies if t is not newest]
        if all(_agree(newest, t, tables) for t in rest):
            kept.append(newest)
            problems += [
                Problem(t.file, f"a second, older or equal dump of rank {rank}; {newest.file} is used") for t in rest
            ]
        else:
            names = ", ".join(t.file for t in copies)
            problems += [Problem(t.file, f"{names} all claim rank {rank} and disagree; none is used") for t in copies]
    return kept


def _agree(one: RankTrace, other: RankTrace, tables: Tables) -> bool:
    """No slot that both hold differs in what was called."""
    groups = {(g.name, g.desc, g.members): g.collectives for g in other.groups if g.collectives}
    for group in one.groups:
        theirs = groups.get((group.name, group.desc, group.members))
        if group.collectives is None or theirs is None:
            continue
        tokens = _tokens(group.collectives.blocks, tables)
        if any(tokens.get(seq, token) != token for seq, token in _tokens(theirs.blocks, tables).items()):
            return False
    return True


def _tokens(blocks: tuple[int, ...], tables: Tables) -> dict[int, int]:
    held = [tables.blocks[key] for key in blocks]
    return {int(s): int(m) for block in held for s, m in zip(block.seqs, block.match, strict=True)}


def _most_common(counts: Counter[_T], latest: Callable[[_T], int]) -> _T:
    """The most frequent; among equals the one seen last in time, so that file order never decides."""
    return max(counts, key=lambda value: (counts[value], latest(value)))
