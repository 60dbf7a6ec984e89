"""Answers of NCCL's RAS client: detects them, reads the text form, and turns them into remarks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct, field

from forkpoint.evidence.machine.kinds import RAS
from forkpoint.evidence.machine.ras_report import (
    Behind,
    RasCommunicator,
    RasCount,
    RasEvent,
    RasProcess,
    RasRank,
    RasRemark,
    RasReport,
    find_behind,
    looks_like_json,
    read_json,
)
from forkpoint.evidence.text import clean
from forkpoint.model.capture import Remark
from forkpoint.model.world import format_ranks

# ---------------------------------------------------------------------------------------------------------------------
# The text that `ncclras` prints.
#
#     #0-0 (27a079b828ff1a75) MISMATCH
#       Communicator ranks have different AllReduce operation counts
#       26 ranks have launched up to operation 6650
#       6 ranks have launched up to operation 6649
#         Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
#
#     DEAD
#       1 job process is considered dead (unreachable via the RAS network)
#       Process 3487984 on node 172.16.64.213 managing GPU 5

MARKS = (
    "Job summary",
    "Communicators...",
    "RAS Monitor Mode",
    "PEER_",
    ") MISMATCH",
    ") INCOMPLETE",
    ") ERROR",
    "DEAD\n",
)
MAX_LINES = 1_000_000
_LINE_LIMIT = 2000

_GPUS = r"(?P<gpus>\d{1,4}(?:,\d{1,4}){0,63})(?: \(NVML (?P<nvml>\d{1,4}(?:,\d{1,4}){0,63})\))?"
_NODE = r"(?P<host>[\w.:%-]{1,253}+)"
_AT = rf"(?: -- (?:GPU {_GPUS} managed by process (?P<pid>\d{{1,9}}) on node {_NODE}|\[process information not found\]))?$"
_COMM = re.compile(r"#(?P<group>\d{1,7})-\d{1,7} \((?P<hash>[0-9a-f]{1,16})\) (?:MISMATCH|INCOMPLETE|ERROR)$")
_ROW = re.compile(
    r"(?P<group>\d{1,7}) +\d{1,7} +\d{1,7} +[\d-]{1,15} +(?P<size>\d{1,7}) +\d{1,9} +[A-Z][A-Z,]{1,40} +[A-Z]"
)
_DIFFER = re.compile(r"Communicator ranks have different (?P<what>\w{1,40}) operation counts$")
_RANKS = re.compile(
    r"(?P<n>\d{1,7}) ranks (?:have (?:launched up to operation (?P<launched>\d{1,18})|(?P<none>not launched any operations)"
    r"|(?P<status>status \w{1,20}))|reported (?P<error>[\w ]{1,60}))$"
)
_RANK = re.compile(
    r"Rank (?P<rank>\d{1,7})(?: (?:has (?:launched up to operation (?P<launched>\d{1,18})|(?P<none>not launched any operations)"
    rf"|(?P<status>status \w{{1,20}}))|reported (?P<error>[\w ]{{1,60}}?)))?{_AT}"
)
_MISSING = re.compile(r"Missing communicator data from (?P<n>\d{1,7}) ranks?$")
_MISSING_RANKS = re.compile(r"The missing ranks?: (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,100})$")
_PROCESS = re.compile(rf"Process (?P<pid>\d{{1,9}}) on node {_NODE} managing GPUs? {_GPUS}$")
_TIMEOUTS = re.compile(r"Encountered (?P<n>\d{1,9}) communication timeouts? ")
_EVENT = re.compile(
    r"\[(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?P<name>PEER_[A-Z_]{1,40}):"
    rf"(?: Process (?P<pid>\d{{1,9}}) on node {_NODE} managing GPUs? {_GPUS}(?=[\s,(:]|$))?"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d{1,3}\.\d{1,3}\.\d{1,3}[\w.+-]{0,40}) compiled with CUDA")
_SECTIONS = {"DEAD", "INCOMPLETE", "TIMEOUT"}


def is_ras_line(line: str) -> bool:
    """Whether only RAS prints such a line."""
    text = line.strip()[:_LINE_LIMIT]
    return text.startswith("RAS Monitor Mode - ") or bool(_COMM.match(text) or _EVENT.match(text))


class _Share(Struct):
    """Ranks that report the same, while their lines are read."""

    line: int
    total: int
    launched: int | None
    text: str
    operation: str | None
    ranks: list[RasRank] = field(default_factory=list[RasRank])


class _Comm(Struct):
    line: int
    group: int
    shares: list[_Share] = field(default_factory=list[_Share])
    missing_total: int = 0
    missing: dict[int, RasRank] = field(default_factory=dict[int, RasRank])
    operation: str | None = None


class _Draft(Struct):
    line: int
    version: str | None = None
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    comms: dict[str, _Comm] = field(default_factory=dict[str, _Comm])
    dead: list[RasProcess] = field(default_factory=list[RasProcess])
    unreachable: list[RasProcess] = field(default_factory=list[RasProcess])
    events: list[RasEvent] = field(default_factory=list[RasEvent])
    timeouts: int | None = None
    section: str = ""
    current: _Comm | None = None


def read_text(text: str, file: str) -> Iterator[RasReport]:
    """One report per answer in the text: people query twice. A last line without a line end is ignored."""
    if not any(mark in text for mark in MARKS):
        return
    lines = text.split("\n", MAX_LINES)
    cut = bool(lines.pop())
    draft, titled = _Draft(1), False
    for number, line in enumerate(lines, 1):
        stripped = line[:_LINE_LIMIT].strip()
        version = _VERSION.match(stripped)
        if version or (stripped == "Job summary" and titled):
            yield from _finish(draft, file, cut=False)
            draft, titled = _Draft(number, version["version"] if version else None), False
        titled = titled or stripped == "Job summary"
        if stripped:
            _take(draft, stripped, number)
    yield from _finish(draft, file, cut=cut)


def _take(draft: _Draft, line: str, number: int) -> None:
    comm = _COMM.match(line)
    event = _EVENT.match(line) if line.startswith("[") else None
    row = _ROW.match(line)
    if comm:
        draft.section = ""
        draft.current = draft.comms.setdefault(comm["hash"].rjust(16, "0"), _Comm(number, int(comm["group"])))
        draft.current.operation = None
    elif line in _SECTIONS or line in {"Errors", "Warnings"}:
        draft.section, draft.current = line, None
    elif event:
        process = _process(event) if event["pid"] else None
        draft.events.append(RasEvent(event["name"], event["when"], process, number))
    elif row:
        draft.sizes[int(row["group"])] = int(row["size"])
    elif draft.current:
        _take_of_comm(draft.current, line, number)
    else:
        _take_of_job(draft, line)


def _take_of_job(draft: _Draft, line: str) -> None:
    process = _PROCESS.match(line)
    timeouts = _TIMEOUTS.match(line)
    if process and draft.section == "DEAD":
        draft.dead.append(_process(process))
    elif process and draft.section == "INCOMPLETE":
        draft.unreachable.append(_process(process))
    elif timeouts and draft.section == "TIMEOUT":
        draft.timeouts = int(timeouts["n"])


def _take_of_comm(comm: _Comm, line: str, number: int) -> None:
    rank = _RANK.match(line)
    several = None if rank else _RANKS.match(line)
    if rank:
        _take_rank(comm, rank, number)
    elif several:
        comm.shares.append(_share(several, int(several["n"]), comm.operation, number))
    elif differ := _DIFFER.match(line):
        comm.operation = None if differ["what"] == "collective" else differ["what"]
    elif missing := _MISSING.match(line):
        comm.missing_total = int(missing["n"])
    elif listed := _MISSING_RANKS.match(line):
        for one in listed["ranks"].split(","):
            comm.missing[int(one)] = RasRank(int(one), None)


def _take_rank(comm: _Comm, match: re.Match[str], number: int) -> None:
    process = _process(match) if match["pid"] else None
    rank = RasRank(int(match["rank"]), process)
    says = match["launched"] or match["none"] or match["status"] or match["error"]
    if says:
        share = _share(match, 1, comm.operation, number)
        share.ranks.append(rank)
        comm.shares.append(share)
    elif comm.shares and len(comm.shares[-1].ranks) < comm.shares[-1].total:
        comm.shares[-1].ranks.append(rank)
    elif len(comm.missing) < comm.missing_total:
        comm.missing[rank.group_rank] = rank


def _share(match: re.Match[str], total: int, operation: str | None, number: int) -> _Share:
    launched = 0 if match["none"] else int(match["launched"]) if match["launched"] else None
    return _Share(number, total, launched, clean(match["status"] or match["error"] or ""), operation)


def _process(match: re.Match[str]) -> RasProcess:
    gpus = _numbers(match["gpus"])
    return RasProcess(clean(match["host"], 253), int(match["pid"]), gpus, _numbers(match["nvml"]) or gpus)


def _numbers(printed: str | None) -> tuple[int, ...]:
    return tuple(int(one) for one in printed.split(",")) if printed else ()


def _finish(draft: _Draft, file: str, *, cut: bool) -> Iterator[RasReport]:
    """Yields nothing if the lines were not from RAS."""
    if not (draft.sizes or draft.comms or draft.dead or draft.unreachable or draft.events):
        return
    comms = tuple(_communicator(name, comm, draft.sizes) for name, comm in draft.comms.items())
    dead, unreachable, events = tuple(draft.dead), tuple(draft.unreachable), tuple(draft.events)
    yield RasReport(file, draft.line, draft.version, None, comms, dead, unreachable, draft.timeouts, events, cut)


def _communicator(name: str, comm: _Comm, sizes: dict[int, int]) -> RasCommunicator:
    missing = tuple(comm.missing[rank] for rank in sorted(comm.missing))
    counts, remarks = _split(comm.shares)
    return RasCommunicator(name, sizes.get(comm.group), counts, comm.missing_total, missing, remarks, comm.line)


def _split(shares: Sequence[_Share]) -> tuple[tuple[RasCount, ...], tuple[RasRemark, ...]]:
    counts = (
        RasCount(s.operation, s.launched, s.total, tuple(s.ranks), s.line) for s in shares if s.launched is not None
    )
    remarks = (RasRemark(s.text, s.total, tuple(s.ranks), s.line) for s in shares if s.launched is None)
    return tuple(counts), tuple(remarks)


# ---------------------------------------------------------------------------------------------------------------------
# Either form.

_HEAD_LINES = 40
_TITLES = ("Job summary", "Communicators...")


def looks_like_ras(head: str) -> bool:
    """Whether the file is a RAS answer. A log that quotes one is still a log."""
    if looks_like_json(head):
        return True
    lines = [line.strip() for line in head.split("\n") if line.strip()][:_HEAD_LINES]
    underlined = any(line.startswith(_TITLES) and below.startswith("=====") for line, below in pairwise(lines))
    return underlined or bool(lines and is_ras_line(lines[0]))


def read_ras(text: str, file: str) -> tuple[RasReport, ...]:
    """In the order of the file."""
    if looks_like_json(text[:8192]):
        return tuple(read_json(text, file))
    return tuple(read_text(text, file))


# ---------------------------------------------------------------------------------------------------------------------
# Reports -> remarks.


def ras_remarks(reports: Iterable[RasReport]) -> tuple[Remark, ...]:
    """Counts that differ, ranks that did not answer, peers that were lost. Equal counts prove nothing: they hang, too."""
    return tuple(remark for report in reports for remark in _of_report(report))


def _of_report(report: RasReport) -> Iterator[Remark]:
    for comm in report.communicators:
        for one in find_behind(comm):
            yield _remark(report, report.line, _describe_behind(one), report.when)
        if comm.missing:
            yield _of_missing(report, comm)
    for event in report.events:
        if event.process is not None:
            says = f"NCCL RAS: {event.name}: process {event.process.pid} on {event.process.host}"
            yield _remark(report, event.line, says, event.when or None)


def _of_missing(report: RasReport, comm: RasCommunicator) -> Remark:
    ranks = tuple(rank.group_rank for rank in comm.missing)
    dead = sum(rank.process in report.dead for rank in comm.missing if rank.process)
    also = f", {dead} of them considered dead" if dead else ""
    says = f"NCCL RAS: no answer from group ranks {format_ranks(ranks, 8)} of communicator {comm.hash}{also}"
    # The text form may name only some of them.
    whole = comm.size if len(ranks) == comm.missing_total else None
    return Remark(report.file, comm.line, None, None, says, RAS, report.when, missing=ranks, size=whole)


def _remark(report: RasReport, line: int, says: str, when: str | None) -> Remark:
    return Remark(report.file, line, None, None, says, RAS, when)


def _describe_behind(behind: Behind) -> str:
    ranks = f"group ranks {format_ranks(behind.group_ranks, 8)}" if behind.group_ranks else f"{behind.total} ranks"
    what = behind.operation or "collectives"
    return f"NCCL RAS: {ranks} of communicator {behind.communicator.hash} launched {behind.launched} {what}, others {behind.most}"
