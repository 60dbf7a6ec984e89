"""PCI addresses, and which rank ran on which host and GPU, from the lines NCCL prints when it creates a communicator."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from msgspec import Struct, structs

from forkpoint.evidence.text import clean
from forkpoint.model.capture import Remark
from forkpoint.model.world import RankPlace

# ---------------------------------------------------------------------------------------------------------------------
# PCI addresses, which programs print differently: `0000:3b:00.0`, `PCI:0000:3b:00`, `00000000:3B:00.0`, `3b000`.

BUS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?(?![0-9a-fA-F.:]\w)"
"""As the kernel and the driver print it; the driver omits the function."""

_PARTS = re.compile(r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")
_DIGITS = re.compile(r"[0-9a-fA-F]{1,13}")
_DEVICES = 32
_FUNCTIONS = 8


def normal_bus(printed: str) -> str | None:
    """The address as `0000:3b:00.0`; None if the text is not an address. A GPU's function is 0.

    NCCL's `busId` is one number: the digits of domain, bus, device and function without separators.
    """
    parts = _PARTS.fullmatch(printed)
    if parts:
        domain, bus, device = (int(part, 16) for part in parts.group(1, 2, 3))
        return _write(domain, bus, device, int(parts[4] or 0))
    if not _DIGITS.fullmatch(printed):
        return None
    number = int(printed, 16)
    return _write(number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF)


def _write(domain: int, bus: int, device: int, function: int) -> str | None:
    if device >= _DEVICES or function >= _FUNCTIONS:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


# ---------------------------------------------------------------------------------------------------------------------
# Which rank ran on which host and GPU, from the lines NCCL prints when it creates a communicator.
#
#     node-52:1759:1759 [0] NCCL INFO ncclCommInitRankConfig comm 0x48ee0840 rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 1a000
#     commId 0xc0c3bdb52e03e3d6 - Init START
#
# The rank in the line is the rank inside that communicator, which may be smaller than the job. The global rank must come
# from a prefix `[rankN]:`, or from the file.

MAX_LINES = 200_000
"""Limit of init lines per file; later ones are ignored."""
SAYS_PLACE = "busId "
"""Every line with a place contains this."""
_LINE_LIMIT = 2000
_INFO = " NCCL INFO "
_SPEAKER = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z0-9][\w.-]{0,252}+):(?P<pid>\d{1,9}):\d{1,9} \[-?\d{1,4}\]$")
_INIT = re.compile(
    r"(?:\[Rank \d{1,7}\] )?(?:nccl\w{1,40} )?comm 0x[0-9a-f]{1,16} rank (?P<group_rank>\d{1,7}) n[rR]anks (?P<nranks>\d{1,7}) "
    r"cudaDev \d{1,4} (?:nvmlDev (?P<gpu>\d{1,4}) )?busId (?P<bus>[0-9a-f]{1,13}) "
)


class _InitLine(Struct, frozen=True):
    host: str
    pid: int
    gpu: int | None
    bus_id: str
    prefix: int | None
    number: int


def read_places(lines: Iterable[str], file: str, rank: int | None) -> tuple[RankPlace, ...]:
    """Places that are certain. `rank`: the rank of the file.

    A rank inside a communicator proves nothing: even the largest communicator may be only part of the job.
    """
    read = (init for number, line in enumerate(lines, 1) if (init := _read_line(line, number)))
    found = list(islice(read, MAX_LINES))
    claims: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    first: dict[tuple[str, int, str], _InitLine] = {}
    for init in found:
        process = (init.host, init.pid, init.bus_id)
        first.setdefault(process, init)
        claims[process] |= {said for said in (init.prefix, rank) if said is not None}
    sure = [(ranks.pop(), first[process]) for process, ranks in claims.items() if len(ranks) == 1]
    return agree(RankPlace(of, at.host, at.gpu, at.bus_id, file, at.number, at.pid) for of, at in sure)


def agree(places: Iterable[RankPlace]) -> tuple[RankPlace, ...]:
    """One place per rank, sorted; none for a rank with two different places (a restart elsewhere, a wrong prefix)."""
    by_rank: dict[int, list[RankPlace]] = defaultdict(list)
    for place in sorted(places, key=lambda place: (place.rank, place.file, place.line)):
        by_rank[place.rank].append(place)
    return tuple(
        same[0] if len({place.pid for place in same}) == 1 else structs.replace(same[0], pid=None)
        for same in by_rank.values()
        if len({(place.host, place.bus_id) for place in same}) == 1 and len({place.gpu for place in same} - {None}) <= 1
    )


def place_of_bus(places: Sequence[RankPlace], host: str | None, bus_id: str | None) -> RankPlace | None:
    """The place of the rank on that GPU; None if no rank, or more than one, is known there."""
    bus = normal_bus(bus_id) if bus_id else None
    if host is None or bus is None:
        return None
    claimed = {place.rank for place in places if place.bus_id == bus and is_same_host(place.host, host)}
    there = [place for place in agree(p for p in places if p.rank in claimed) if place.bus_id == bus]
    return there[0] if len(there) == 1 else None


def locate(remarks: Iterable[Remark], places: Sequence[RankPlace], ranks: AbstractSet[int]) -> tuple[Remark, ...]:
    """Adds missing hosts: plain dmesg does not print its host. The file or folder may name it; or the job had only one host,
    if the places of all its ranks are known.
    """
    hosts = {place.host for place in places}
    alone = hosts if len(hosts) == 1 and ranks <= {place.rank for place in places} else set[str]()
    found: list[Remark] = []
    for remark in remarks:
        spelled = {host for host in hosts if _spells(remark.file, host)} or alone
        known = remark.host is not None or (remark.bus_id is None and not remark.pids)
        found.append(remark if known or len(spelled) != 1 else structs.replace(remark, host=min(spelled)))
    return tuple(found)


def _spells(file: str, host: str) -> bool:
    """`dmesg_node-7.txt`, `node-7/dmesg.txt`; not `node-70.txt`."""
    near = "/".join(file.split("/")[-2:])
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", near, re.IGNORECASE))


def _read_line(line: str, number: int) -> _InitLine | None:
    from forkpoint.evidence.logs.lines import parse_line  # noqa: PLC0415 - slow to import, and not always needed

    at = line.find(_INFO, 0, _LINE_LIMIT) if SAYS_PLACE in line else -1
    if at < 0:
        return None
    speaker = _SPEAKER.search(line, max(0, at - 300), at)
    init = _INIT.match(line, at + len(_INFO), _LINE_LIMIT)
    bus_id = normal_bus(init["bus"]) if init else None
    if speaker is None or init is None or bus_id is None or int(init["group_rank"]) >= int(init["nranks"]):
        return None
    return _InitLine(
        host=clean(speaker["host"], 253),
        pid=int(speaker["pid"]),
        gpu=int(init["gpu"]) if init["gpu"] else None,
        bus_id=bus_id,
        prefix=parse_line(line[:_LINE_LIMIT]).speaker.rank,
        number=number,
    )


def is_same_host(one: str, two: str) -> bool:
    """NCCL omits the domain; a journal may print it."""
    one, two = one.casefold(), two.casefold()
    if "." in one and "." in two:
        return one == two
    return one.partition(".")[0] == two.partition(".")[0]
