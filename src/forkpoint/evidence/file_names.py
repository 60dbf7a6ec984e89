"""Which rank a file belongs to: from the content of a dump, or from the file's name.

A number in the file's own name takes precedence over one in its folder's (`job_rank0_hang/_dump_3` is rank 3), and a number
that all files of a folder share is not a rank. A rank that only the path suggests (`attempt_0/3/stderr.log`, `out_3.txt`)
is a guess: `text_files.believe_places` accepts it unless the files contradict it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from msgspec import Struct

from forkpoint.traces.columns import DumpColumns

_NUMBER = re.compile(r"\d{1,18}")
_BEFORE = re.compile(r"([A-Za-z]{0,24})[_.=-]{0,2}$")
_RANK_WORD = re.compile(r"([a-z]{0,12})[_.-]?rank$", re.IGNORECASE)
_SUFFIXES = re.compile(r"(?:\.[A-Za-z_]+)*$")
"""Without numbers: the number in `stack.task4` is what distinguishes it from others."""
_RANK_FOLDER = re.compile(r"(?:global[_-]?)?rank[_=-]?\d{1,7}", re.IGNORECASE)
_OTHER_RANKS = frozenset({"local", "node", "machine", "group", "dp", "tp", "pp", "cp", "ep", "mp", "sp"})
"""Words before `rank` that make it something else: the rank of a node, or within a part of the model."""
_NOT_RANKS = frozenset({
    *("node", "host", "machine", "rack", "pod", "worker", "master", "job", "run", "try", "attempt", "restart", "part", "step"),
    *("epoch", "iter", "iteration", "version", "v", "py", "cuda", "gpu", "slurm", "pid", "thread", "local", "chunk", "shard"),
})  # fmt: skip
"""Words whose numbers count something else."""
_COMPONENTS = 4
"""How many components of a path are looked at, from its end; files of one job do not differ in the others."""
_MAX_RANK = 10**7


class RankClaim(Struct, frozen=True):
    rank: int | None
    problem: str | None = None
    """Why the rank is unknown or in doubt."""


class _Number(Struct, frozen=True):
    """A number in a path."""

    value: int
    depth: int
    """0: in the file's own name; 1: in its folder's name; ..."""
    place: int
    """Its index among the path's numbers."""
    word: str
    """The letters before it, in lower case."""
    is_rank: bool
    """It follows the word `rank`, meaning the global rank."""
    ends_name: bool
    """Only suffixes follow it in its component."""
    is_whole: bool
    """The component is just this number."""


class FileNames:
    """The numbers in the names of files that are read together. A number that differs between files of one form (equal names
    but for numbers) may be a rank.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        values: dict[str, list[set[int]]] = defaultdict(list)
        for path in paths:
            end = _end_of(path)
            numbers, seen = _NUMBER.findall(end), values[_NUMBER.sub("#", end)]
            seen += [set() for _ in numbers[len(seen) :]]
            for one, known in zip(numbers, seen, strict=True):
                known.add(int(one))
        self._values = values

    def _numbers(self, path: str) -> tuple[list[_Number], set[int], bool]:
        """All numbers; the places of those that differ between files of this form; and whether any do."""
        form, numbers = _form(path)
        seen = self._values.get(form, [])
        varying = {place for place, known in enumerate(seen) if len(known) > 1}
        return numbers, varying, bool(varying)

    def of_dump(self, path: str) -> int | None:
        """`nccl_trace_rank_3`, `trace_rank_node02_5`, `comm_traces/rank_12/dump`, `dump_4.bin`: any number at the end of a
        dump's name may be its rank, since its content is checked, too.
        """
        numbers, varying, has_others = self._numbers(path)
        own = [n for n in numbers if n.depth == 0 and n.ends_name]
        spelled = self.spelled(path)
        if (
            own
            and spelled is None
            and not (has_others and own[-1].place not in varying and _in_folder(numbers, varying))
        ):
            return own[-1].value
        return spelled if spelled is not None else next((n.value for n in numbers if n.is_whole and n.depth == 1), None)

    def spelled(self, path: str) -> int | None:
        """Only a number after the word `rank`: names of logs also end in dates, job ids and attempts."""
        numbers, varying, has_others = self._numbers(path)
        named = [n for n in numbers if n.depth == 0 and n.is_rank]
        if named:
            return named[-1].value
        own = [n for n in numbers if n.depth == 0 and n.ends_name and n.word not in _NOT_RANKS]
        for n in reversed([n for n in numbers if n.depth == 1 and n.is_rank]):
            shared = has_others and n.place not in varying
            if not shared and (n.place in varying or not own or _RANK_FOLDER.fullmatch(path.split("/")[-2])):
                return n.value
        return None

    def placed(self, path: str) -> int | None:
        """A guess: a number that differs between files of one form, or that names the folder (torchrun's local ranks)."""
        numbers, varying, _ = self._numbers(path)
        if self.spelled(path) is not None:
            return None
        own = [n for n in numbers if n.depth == 0 and n.ends_name and n.word not in _NOT_RANKS and n.place in varying]
        torchrun = len(parts := path.split("/")) > 2 and parts[-3].startswith("attempt_")
        whole = [n for n in numbers if n.is_whole and n.depth == 1 and (n.place in varying or torchrun)]
        found = own[-1:] or whole[-1:]
        return found[0].value if found else None

    def varying(self, path: str) -> int | None:
        """The only number in which files of this form differ."""
        numbers, varying, _ = self._numbers(path)
        return numbers[next(iter(varying))].value if len(varying) == 1 else None

    def counted(self, path: str) -> int | None:
        """The only number in which files of this form differ, if they count from 0 and none is called the master or the launcher:
        `job-worker-0.txt`, `job-worker-1.txt`, ...
        """
        form, numbers = _form(path)
        varying = [place for place, known in enumerate(self._values.get(form, [])) if len(known) > 1]
        if len(varying) != 1 or min(self._values[form][varying[0]]) > 0 or any(map(_HEAD_OF_JOB.search, self._values)):
            return None
        return numbers[varying[0]].value


_HEAD_OF_JOB = re.compile(r"master|launcher|chief|leader", re.IGNORECASE)
"""With one of these, the number of a worker is its rank less one, or nothing of the kind."""


def _in_folder(numbers: list[_Number], varying: set[int]) -> bool:
    return any(n.place in varying and n.depth > 0 and (n.is_rank or n.is_whole) for n in numbers)


def _end_of(path: str) -> str:
    return "/".join(path.split("/")[-_COMPONENTS:])


@lru_cache(maxsize=2)
def _form(path: str) -> tuple[str, list[_Number]]:
    """A path without its numbers, and the numbers. One file is asked about several times in a row."""
    last = _end_of(path)
    parts = last.split("/")
    numbers: list[_Number] = []
    for index, part in enumerate(parts):
        end = _SUFFIXES.search(part)
        stem = part[: end.start()] if end else part
        for found in _NUMBER.finditer(part):
            value, before = int(found[0]), part[: found.start()]
            word = _BEFORE.search(before)
            rank = _RANK_WORD.search(before.rstrip("_.=-")) if value < _MAX_RANK else None
            numbers.append(
                _Number(
                    value=value,
                    depth=len(parts) - 1 - index,
                    place=len(numbers),
                    word=word[1].lower() if word else "",
                    is_rank=rank is not None and rank[1].lower() not in _OTHER_RANKS,
                    ends_name=found.end() == len(stem) and value < _MAX_RANK,
                    is_whole=found[0] == part and value < _MAX_RANK,
                )
            )
    return _NUMBER.sub("#", last), numbers


_ALONE = FileNames()


def spelled_rank(path: str) -> int | None:
    """`FileNames.spelled` for a single file."""
    return _ALONE.spelled(path)


def without_numbers(path: str) -> str:
    """Equal for files whose paths differ only in numbers."""
    return _NUMBER.sub("#", path)


_WORDS = re.compile(r"[^/_.=\s-]*[A-Za-z][^/_.=\s-]*")


class PathWords:
    """Ranks by words in the paths of files whose rank is known: the host's name in `trace_rank_cn43_3` shows whose
    `cn43/stacks.txt` is.
    """

    def __init__(self, known: Iterable[tuple[str, int]]) -> None:
        self._ranks: dict[str, set[int]] = defaultdict(set)
        for path, rank in known:
            for word in _words(path):
                self._ranks[word].add(rank)

    def rank(self, path: str) -> int | None:
        """The rank to which each of its words points, if there is just one."""
        found = {next(iter(ranks)) for word in _words(path) if len(ranks := self._ranks.get(word, set())) == 1}
        return next(iter(found)) if len(found) == 1 else None


def _words(path: str) -> list[str]:
    return _WORDS.findall("/".join(path.split("/")[-_COMPONENTS:]))


class RankHints(Struct, frozen=True):
    """What a dump's content says about its rank."""

    stated: int | None
    """Only dumps that a tool has re-written state their rank."""
    in_messages: int | None
    """The rank's own end in one of its messages."""
    declared: tuple[range | frozenset[int], ...]
    """Members of each declared group: the rank is in all of them."""

    def allow(self, rank: int) -> bool:
        return all(rank in members for members in self.declared)


def claim_rank(columns: DumpColumns, path: str, names: FileNames = _ALONE) -> RankClaim:
    return claim_by_hints(hints_of(columns), path, names)


def hints_of(columns: DumpColumns) -> RankHints:
    declared = tuple(frozenset(g.ranks) for g in columns.header.groups if g.ranks)
    return RankHints(columns.header.rank, _rank_in_messages(columns), declared)


def claim_by_hints(hints: RankHints, path: str, names: FileNames = _ALONE) -> RankClaim:
    """The content decides if it can; the name counts only if the content allows it."""
    named = names.of_dump(path)
    own = hints.stated
    if own is None and hints.in_messages is not None and hints.allow(hints.in_messages):
        own = hints.in_messages
    if own is None and not hints.declared:
        return RankClaim(named, None if named is not None else _UNKNOWN)
    if own is None and named is not None and hints.allow(named):
        return RankClaim(named)  # saves intersecting groups of up to 100,000 members
    return _among(
        frozenset({own}) if own is not None else frozenset.intersection(*map(frozenset, hints.declared)), named
    )


def _among(possible: frozenset[int], named: int | None) -> RankClaim:
    if named in possible:
        return RankClaim(named)
    if len(possible) == 1:
        (rank,) = possible
        return RankClaim(rank, None if named is None else f"named rank {named}, but its content is from rank {rank}")
    if named is None:
        return RankClaim(None, _UNKNOWN)
    return RankClaim(None, f"named rank {named}, but its groups have no such rank; is it from another job?")


_UNKNOWN = "does not say which rank wrote it; put the rank at the end of its name (nccl_trace_rank_3)"


def _rank_in_messages(columns: DumpColumns) -> int | None:
    """The source of a send, or the destination of a receive, is the rank itself, as a group rank."""
    members = columns.members()
    # A signature without rows (only a dropped generation of groups used it) is looked up at the first row.
    used, rows = np.unique(columns.signature, return_index=True)
    first = dict(zip(used.tolist(), rows.tolist(), strict=True))
    for index, signature in enumerate(columns.signatures):
        if signature.peers is None:
            continue
        ranks = members[int(columns.group[first.get(index, 0)])]
        own = signature.peers[0 if signature.op == "send" else 1]
        if ranks is not None and own < len(ranks):
            return ranks[own]
    return None
