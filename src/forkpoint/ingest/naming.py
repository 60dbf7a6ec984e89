"""Whose file is it? The rank from what a dump holds, or from any file name: no prefix has to be given."""

import re
from dataclasses import dataclass
from pathlib import PurePath

from forkpoint.ingest.flight_recorder.columns import DumpColumns

_EXPLICIT = re.compile(r"([a-z]{0,12})[_.-]?rank[_.=-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_OTHER_NUMBERS = frozenset({"local", "node", "machine", "group", "dp", "tp", "pp", "cp", "ep", "mp", "sp"})
"""What else has ranks: workers of a node, nodes, and parts of the model or data."""
_TRAILING = re.compile(r"(?:^|\D)(\d{1,7})(?:\.[A-Za-z]\w*)*$")


@dataclass(frozen=True, slots=True)
class RankClaim:
    rank: int | None
    problem: str | None = None
    """What does not fit together about it."""


def rank_from_name(path: str) -> int | None:
    """`nccl_trace_rank_3`, `rank-7.json`, `trace_rank_node02_5`, `comm_traces/rank_12/dump`, `dump_4.bin`."""
    rank = spelled_rank(path)
    trailing = _TRAILING.search(PurePath(path).name)
    return rank if rank is not None or trailing is None else int(trailing[1])


def spelled_rank(path: str) -> int | None:
    """Only a number that follows the word rank: logs end in dates, job numbers and attempts."""
    pure = PurePath(path)
    for part in (pure.name, pure.parent.name):
        numbers = [int(number) for what, number in _EXPLICIT.findall(part) if what.lower() not in _OTHER_NUMBERS]
        if numbers:
            return numbers[-1]
    return None


def without_rank(path: str) -> str:
    """Equal for files that differ in the rank alone."""
    return _EXPLICIT.sub(r"\1rank", path)


def claim_rank(columns: DumpColumns, path: str) -> RankClaim:
    """Content decides where it speaks; the name only where the content allows it."""
    possible = _possible_ranks(columns)
    named = rank_from_name(path)
    if possible is None:
        return RankClaim(named, None if named is not None else _UNKNOWN)
    if named in possible:
        return RankClaim(named)
    if len(possible) == 1:
        (rank,) = possible
        return RankClaim(rank, None if named is None else f"named as rank {named}, but what it holds is rank {rank}'s")
    if named is None:
        return RankClaim(None, _UNKNOWN)
    return RankClaim(None, f"named as rank {named}, but its groups have no such rank; another job's file?")


_UNKNOWN = "does not say which rank wrote it; put the rank at the end of its name (nccl_trace_rank_3)"


def _possible_ranks(columns: DumpColumns) -> frozenset[int] | None:
    """Ranks that the content allows: a dump declares only groups that its rank belongs to. None: it says nothing."""
    if columns.header.rank is not None:
        return frozenset({columns.header.rank})
    declared = [frozenset(g.ranks) for g in columns.header.groups if g.ranks]
    possible = frozenset[int].intersection(*declared) if declared else None
    own = _rank_in_messages(columns)
    if own is not None and (possible is None or own in possible):
        return frozenset({own})
    return possible


def _rank_in_messages(columns: DumpColumns) -> int | None:
    """A send names its source, a receive its destination: the rank itself, as a group rank."""
    for index, signature in enumerate(columns.signatures):
        if signature.peers is None:
            continue
        row = int((columns.signature == index).argmax())
        members = columns.members(int(columns.group[row]))
        own = signature.peers[0 if signature.op == "send" else 1]
        if members is not None and own < len(members):
            return members[own]
    return None
