"""Whose file is it? The rank from what a dump holds, or from any file name: no prefix has to be given."""

import os
import re
from dataclasses import dataclass

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
    trailing = _TRAILING.search(os.path.basename(path)) if rank is None else None
    return rank if rank is not None or trailing is None else int(trailing[1])


def spelled_rank(path: str) -> int | None:
    """Only a number that follows the word rank: logs end in dates, job numbers and attempts."""
    folder, name = os.path.split(path)
    for part in (name, os.path.basename(folder)):
        numbers = [int(number) for what, number in _EXPLICIT.findall(part) if what.lower() not in _OTHER_NUMBERS]
        if numbers:
            return numbers[-1]
    return None


def without_rank(path: str) -> str:
    """Equal for files that differ in the rank alone."""
    return _EXPLICIT.sub(r"\1rank", path)


@dataclass(frozen=True, slots=True)
class RankHints:
    """What a dump's content says about whose it is."""

    stated: int | None
    """Only re-written dumps state their rank."""
    in_messages: int | None
    """The end that is the rank's own, in one of its messages."""
    declared: tuple[range | frozenset[int], ...]
    """Members of the groups it declares: its rank belongs to all of them."""

    def allow(self, rank: int) -> bool:
        return all(rank in members for members in self.declared)


def claim_rank(columns: DumpColumns, path: str) -> RankClaim:
    return claim_by_hints(hints_of(columns), path)


def hints_of(columns: DumpColumns) -> RankHints:
    declared = tuple(frozenset(g.ranks) for g in columns.header.groups if g.ranks)
    return RankHints(columns.header.rank, _rank_in_messages(columns), declared)


def claim_by_hints(hints: RankHints, path: str) -> RankClaim:
    """Content decides where it speaks; the name only where the content allows it."""
    named = rank_from_name(path)
    own = hints.stated
    if own is None and hints.in_messages is not None and hints.allow(hints.in_messages):
        own = hints.in_messages
    if own is None and not hints.declared:
        return RankClaim(named, None if named is not None else _UNKNOWN)
    if own is None and named is not None and hints.allow(named):
        return RankClaim(named)  # before all that are possible are counted: groups have up to 100,000 members
    return _among(
        frozenset({own}) if own is not None else frozenset.intersection(*map(frozenset, hints.declared)), named
    )


def _among(possible: frozenset[int], named: int | None) -> RankClaim:
    if named in possible:
        return RankClaim(named)
    if len(possible) == 1:
        (rank,) = possible
        return RankClaim(rank, None if named is None else f"named as rank {named}, but what it holds is rank {rank}'s")
    if named is None:
        return RankClaim(None, _UNKNOWN)
    return RankClaim(None, f"named as rank {named}, but its groups have no such rank; another job's file?")


_UNKNOWN = "does not say which rank wrote it; put the rank at the end of its name (nccl_trace_rank_3)"


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
