"""Reports of NCCL's RAS network, and its answers in JSON. Its ranks are ranks inside a communicator: `group_rank`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from forkpoint.evidence.text import clean

# ---------------------------------------------------------------------------------------------------------------------
# What NCCL's RAS network knew when it was queried.
#
# It counts launches, so ranks that all wait in one collective look equal, and counts that differ mean something only if a
# second report shows that they do not change.


class RasProcess(Struct, frozen=True):
    host: str | None
    """An address, as RAS prints it."""
    pid: int | None
    gpus: tuple[int, ...]
    """CUDA's numbers in that process."""
    nvml_gpus: tuple[int, ...]
    """NVML's numbers; the same as `gpus` if RAS prints only one number."""


class RasRank(Struct, frozen=True):
    group_rank: int
    process: RasProcess | None


class RasCount(Struct, frozen=True):
    """Ranks of a communicator that launched the same number of operations of one kind."""

    operation: str | None
    """`AllReduce`; None before NCCL 2.26, which counts all collectives together."""
    launched: int
    total: int
    """How many ranks."""
    ranks: tuple[RasRank, ...]
    """Those that are named. The text form names only outliers, so this may be fewer than `total`."""
    line: int


class RasRemark(Struct, frozen=True):
    """Ranks of a communicator that report the same unusual status, or the same error."""

    text: str
    total: int
    ranks: tuple[RasRank, ...]
    line: int


class RasCommunicator(Struct, frozen=True):
    hash: str
    """Sixteen hexadecimal digits, like `commId` in NCCL's own lines."""
    size: int | None
    counts: tuple[RasCount, ...]
    """Only for operations in which the ranks differ."""
    missing_total: int
    missing: tuple[RasRank, ...]
    """Ranks that did not answer, as far as they are named."""
    remarks: tuple[RasRemark, ...]
    line: int


class RasEvent(Struct, frozen=True):
    """From `ncclras -m`."""

    name: str
    """`PEER_DEAD`, `PEER_UNRESPONSIVE`, `PEER_RECOVERED`..."""
    when: str
    process: RasProcess | None
    line: int


class RasReport(Struct, frozen=True):
    file: str
    line: int
    version: str | None
    when: str | None
    communicators: tuple[RasCommunicator, ...]
    """In the text form only those with something to report; in JSON all."""
    dead: tuple[RasProcess, ...]
    """Not reachable for 60 seconds."""
    unreachable: tuple[RasProcess, ...]
    """Did not answer this query: stopped, busy, or dead without RAS knowing yet."""
    timeouts: int | None
    events: tuple[RasEvent, ...]
    cut: bool
    """The end is missing: what the report does not mention may still be the case."""


class Behind(Struct, frozen=True):
    """Ranks of a communicator that launched fewer operations than others."""

    communicator: RasCommunicator
    operation: str | None
    launched: int
    most: int
    """The highest count."""
    total: int
    group_ranks: tuple[int, ...]
    """All of them, or only those that are named."""


def find_behind(communicator: RasCommunicator) -> tuple[Behind, ...]:
    """The furthest behind first. RAS names only the smaller side, which may be the one ahead: then the ranks behind are the
    remaining ones, if the rest of the communicator is accounted for.
    """
    found: list[Behind] = []
    for operation in dict.fromkeys(count.operation for count in communicator.counts):
        levels = [count for count in communicator.counts if count.operation == operation]
        most = max(level.launched for level in levels)
        found += [
            Behind(communicator, operation, level.launched, most, level.total, _members(communicator, levels, level))
            for level in levels
            if level.launched < most
        ]
    return tuple(sorted(found, key=lambda one: (one.launched - one.most, one.operation or "")))


def _members(communicator: RasCommunicator, levels: list[RasCount], level: RasCount) -> tuple[int, ...]:
    named = {rank.group_rank for rank in level.ranks}
    others = [rank.group_rank for other in levels if other is not level for rank in other.ranks]
    others += [rank.group_rank for rank in communicator.missing]
    size = communicator.size
    if len(named) < level.total and size is not None and len(set(others)) == len(others) == size - level.total:
        named = set(range(size)) - set(others)
    return tuple(sorted(named))


# ---------------------------------------------------------------------------------------------------------------------
# What `ncclras -f json` prints, from NCCL 2.28.7 on: every rank's counts, without any evaluation.
#
# Several answers may follow each other. 2.28.9 forgets a comma. From a truncated answer, complete communicators are kept.

_SIZE_LIMIT = 256 << 20
_MAX_NUMBER = 10**18
_FORGOTTEN_COMMA = re.compile(r"(?<=[\]}\"\w])(?=[ \t\r]{0,8}\n[ \t]{0,40}[\"{])")
_DECODER = json.JSONDecoder()
_VERSION = re.compile(r'"nccl_version": ?"([\w.+-]{1,60})"')
_TIME = re.compile(r'"timestamp": ?"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"')
_LIST = re.compile(r'"communicators": ?\[')
_HASH = re.compile(r"(?:0x)?([0-9a-f]{1,16})")
_STATES = ("finalize_called", "destroy_flag", "abort_flag")

Row = dict[str, Any]


def looks_like_json(head: str) -> bool:
    start = head.lstrip()[:2000]
    if not start.startswith("{"):
        return False
    return ('"nccl_version"' in start and '"communicators' in start) or '"event": "PEER_' in start


def read_json(text: str, file: str) -> Iterator[RasReport]:
    """One report per answer; each event gets a report of its own."""
    text = text[:_SIZE_LIMIT]
    at, repaired = _skip(text, 0), False
    line, counted = 1, 0
    while at < len(text) and text[at] == "{":
        line, counted = line + text.count("\n", counted, at), at
        try:
            row, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            if repaired:
                yield from _salvage(text[at:], file, line)
                return
            text, repaired = text[:at] + _FORGOTTEN_COMMA.sub(",", text[at:]), True
            continue
        yield from _read_row(row, file, line)
        at = _skip(text, end)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _salvage(text: str, file: str, line: int) -> Iterator[RasReport]:
    begin = _LIST.search(text[:2000])
    version, when = _VERSION.search(text[:2000]), _TIME.search(text[:2000])
    found: list[Row] = []
    at = _skip(text, begin.end()) if begin else len(text)
    while at < len(text) and text[at] == "{":
        try:
            row, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(row)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at : at + 1] == "," else len(text)
    if found:
        row = {"nccl_version": version[1] if version else None, "timestamp": when[1] if when else None}
        yield _report({**row, "communicators": found}, file, line, cut=True)


def _read_row(row: Row, file: str, line: int) -> Iterator[RasReport]:
    if isinstance(row.get("communicators"), list):
        yield _report(row, file, line, cut=False)
    elif isinstance(row.get("event"), str) and row["event"].startswith("PEER_"):
        peer = _row(row.get("peer"))
        process = RasProcess(_text(peer.get("host")), _int(peer.get("pid")), *_gpus(peer)) if peer else None
        event = RasEvent(clean(row["event"], 60), _text(row.get("timestamp")) or "", process, line)
        yield RasReport(file, line, None, event.when or None, (), (), (), None, (event,), cut=False)


def _report(row: Row, file: str, line: int, *, cut: bool) -> RasReport:
    rows = [one for one in map(_row, _list(row["communicators"])) if one]
    missing = [one for comm in rows for one in map(_row, _list(comm.get("missing_ranks")))]
    dead = [_process(one) for one in missing if _row(one.get("status")).get("considered_dead") is True]
    lost = [_process(one) for one in missing if _row(one.get("status")).get("unresponsive") is True]
    return RasReport(
        file=file,
        line=line,
        version=_text(row.get("nccl_version")),
        when=_text(row.get("timestamp")),
        communicators=tuple(comm for one in rows if (comm := _communicator(one, line))),
        dead=tuple(dict.fromkeys(dead)),
        unreachable=tuple(one for one in dict.fromkeys(lost) if one not in set(dead)),
        timeouts=_int(_row(row.get("ras")).get("timeouts_count")),
        events=(),
        cut=cut,
    )


def _communicator(row: Row, line: int) -> RasCommunicator | None:
    name = _HASH.fullmatch(str(row.get("hash")))
    if name is None:
        return None
    ranks = [(rank, one) for one in map(_row, _list(row.get("ranks"))) if (rank := _rank(one))]
    missing = [rank for one in map(_row, _list(row.get("missing_ranks"))) if (rank := _rank(one))]
    return RasCommunicator(
        hash=name[1].rjust(16, "0"),
        size=_int(row.get("size")),
        counts=tuple(_counts(ranks, line)),
        missing_total=len(missing),
        missing=tuple(sorted(missing, key=lambda rank: rank.group_rank)),
        remarks=tuple(_remarks(ranks, line)),
        line=line,
    )


def _counts(ranks: list[tuple[RasRank, Row]], line: int) -> Iterator[RasCount]:
    """The counts of each operation in which the ranks differ. Ranks without a count are left out."""
    levels: dict[str, dict[int, list[RasRank]]] = defaultdict(lambda: defaultdict(list))
    for rank, row in ranks:
        for operation, launched in _row(row.get("collective_counts")).items():
            if (count := _int(launched)) is not None:
                levels[operation][count].append(rank)
    for operation, by_count in levels.items():
        if len(by_count) > 1:
            for launched, same in sorted(by_count.items(), reverse=True):
                yield RasCount(clean(operation, 40), launched, len(same), tuple(same), line)


def _remarks(ranks: list[tuple[RasRank, Row]], line: int) -> Iterator[RasRemark]:
    """States that a running communicator does not have. Code 7 means that initialisation is still in progress."""
    said: dict[str, list[RasRank]] = defaultdict(list)
    for rank, row in ranks:
        status = _row(row.get("status"))
        for state in _STATES:
            if status.get(state) is True:
                said[state].append(rank)
        for code in ("init_state", "async_error"):
            if number := _int(status.get(code)):
                said[f"{code} {number}"].append(rank)
    for text, same in said.items():
        yield RasRemark(text, len(same), tuple(same), line)


def _rank(row: Row) -> RasRank | None:
    rank = _int(row.get("rank"))
    return None if rank is None else RasRank(rank, _process(row))


def _process(row: Row) -> RasProcess:
    cuda, nvml = _int(row.get("cuda_dev")), _int(row.get("nvml_dev"))
    gpus = () if cuda is None else (cuda,)
    return RasProcess(_text(row.get("host")), _int(row.get("pid")), gpus, () if nvml is None else (nvml,))


def _gpus(row: Row) -> tuple[tuple[int, ...], tuple[int, ...]]:
    cuda, nvml = (
        tuple(number for one in _list(row.get(key))[:64] if (number := _int(one)) is not None)
        for key in ("cuda_devs", "nvml_devs")
    )
    return cuda, nvml


def _row(value: object) -> Row:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: object) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER
    return int(value) if known and isinstance(value, int) else None


def _text(value: object) -> str | None:
    return (clean(value, 253) or None) if isinstance(value, str) else None
