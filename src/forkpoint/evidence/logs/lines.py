"""Splits a log into lines, and lines into speaker, time and message.

Launcher prefixes, timestamps, c10's header and the process group are stripped only here. `[rank3]:` is the global rank and
takes precedence over all others. `[Rank 3]` is the rank inside some group (and outdated in WorkNCCL lines): it is kept as
`group_rank` and never used as a rank.
"""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from msgspec import Struct

from forkpoint.evidence.text import SYSLOG_TIME, clean, find_time, without_escapes
from forkpoint.model.log import Group, Speaker

CHUNK = 1 << 18
LONGEST = 1 << 22
"""A line longer than this is read in pieces."""

_RANK = r"(?P<n>0|[1-9]\d{0,6})"
_LAYERS_AT_MOST = 8
_NOBODY = Speaker()
_REPEATED = re.compile(r" ?\[repeated (\d{1,9})x across cluster\](?: \(Ray deduplicates[^\n]{0,300})?")

C10 = re.compile(
    r"\[(?P<level>[IWEFV])(?:(?P<date>\d{3,4}) (?P<time>\d\d:\d\d:\d\d)\.\d{1,9})? ?(?P<source>[\w./-]{1,120}+):\d{1,7}\] ?"
)
"""The header of C++ lines: month and day without a leading zero, no year; the fraction comes from another clock."""

_GLUED = re.compile(r"(?=\[rank\d{1,7}\]:\[[IWEFV](?:\d{3,4} \d\d:\d\d:\d\d\.| ?[\w.]{1,60}:\d))")
_GROUP = re.compile(
    r"\[(?:PG ID \d{1,9} PG GUID (?P<guid>[^\s(\]]{1,120}+)(?:\((?P<desc>[^)\]]{0,200}+)\))?"
    r"|PG (?P<name>[^\s\]]{1,120}+)(?: \((?P<desc_old>[^)\]]{0,200}+)\))?) Rank (?P<rank>\d{1,7})\]"
)
_GROUP_RANK = re.compile(r"\s{0,4}\[Rank (?P<rank>\d{1,7})\] ?")
NCCL_HEADER = re.compile(
    r"(?:\[[\d: -]{1,30}[^\]]{0,10}\] )?(?P<host>[^\s:]{1,100}+):(?P<pid>\d{1,9}):\d{1,9} \[(?P<device>-?\d{1,4})\] "
)
"""How NCCL's own lines begin: host, process, thread and device."""


def read_chunks(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The stream in pieces that end at line ends."""
    while chunk := stream.read(size):
        yield chunk if chunk.endswith(b"\n") else chunk + stream.readline(LONGEST)


def split_lines(chunk: bytes) -> list[bytes]:
    """The lines of a chunk, without an empty one after the last newline."""
    lines = chunk.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def decode_line(raw: bytes, limit: int) -> str:
    """The beginning of a line as text. Progress bars overwrite it after a carriage return: the last version is returned."""
    return raw[:limit].decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]


class ParsedLine(Struct):
    """A line without its prefixes, and what they say."""

    message: str
    """The text after all prefixes."""
    speaker: Speaker = _NOBODY
    time: str | None = None
    group: Group | None = None
    from_c10: bool = False
    repeated: int = 1
    role: int | None = None
    """The outer one of two `[rankN]:`. A launcher whose role is called "rank" numbers its local workers like that."""
    of_process: bool = False
    """The prefix (Ray's) identifies one process."""
    blank: bool = False
    """There was a space between the last prefix and the message."""
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    task: int | None = None
    pid: int | None = None


def parse_line(text: str) -> ParsedLine:
    """Strips the prefixes of one line, from the outside in."""
    text = without_escapes(text).removeprefix("^C")  # as a terminal shows the interruption
    line = ParsedLine(text)
    if text.endswith((" across cluster]", ")")) and (repeated := _REPEATED.search(text)):
        line.message = text[: repeated.start()]
        line.repeated = 1 + int(repeated[1])
    for _ in range(_LAYERS_AT_MOST):
        if line.from_c10 or not _peel(line):
            break
    if line.rank is None and line.message.startswith("{") and (named := _JSON_RANK.match(line.message)):
        line.rank = int(named[1])
    line.speaker = Speaker(line.rank, line.local_rank, line.host, line.task, line.pid)
    line.time = line.time or find_time(line.message[:80])
    line.group = _find_group(line.message)
    return line


_JSON_RANK = re.compile(r'\{.{0,400}?"(?:global_)?rank": ?"?(\d{1,7})\b')
"""In lines that are JSON records."""


def split_glued(text: str) -> list[str]:
    """The messages of one physical line: progress bars end in a carriage return, and lines of two writers can run together."""
    parts = text.split("\r") if "\r" in text else [text]
    return [piece for part in parts for piece in (_split_writers(part) if "]:[" in part else [part]) if piece]


def _split_writers(text: str) -> list[str]:
    pieces = _GLUED.split(text)
    if len(pieces) > 1 and pieces[0] and not parse_line(pieces[0]).message:
        pieces[:2] = [pieces[0] + pieces[1]]
    return pieces


def _peel(line: ParsedLine) -> bool:
    """Strips the outermost prefix, if there is one."""
    message = line.message
    for regex, apply in _LAYERS.get(message[:1], ()):
        match = regex.match(message)
        if match:
            apply(line, match)
            line.message = message[match.end() :]
            line.blank = match[0].endswith(" ")
            return True
    return False


def _ranked(line: ParsedLine, match: re.Match[str]) -> None:
    line.role = line.rank
    line.rank = int(match["n"] or match["lightning"])


def _c10(line: ParsedLine, match: re.Match[str]) -> None:
    line.from_c10 = True
    if match["time"]:
        line.time = f"{match['date']} {match['time']}"


def _stamped(line: ParsedLine, match: re.Match[str]) -> None:
    line.time = line.time or match["time"]


def _hosted(line: ParsedLine, match: re.Match[str]) -> None:
    line.host = line.host or clean(match["host"], 100)


def _on_host(line: ParsedLine, match: re.Match[str]) -> None:
    _stamped(line, match)
    _hosted(line, match)
    if match["pid"]:
        line.pid = int(match["pid"])


def _in_actor(line: ParsedLine, match: re.Match[str]) -> None:
    line.pid = int(match["pid"])
    line.host = line.host or match["ip"]
    line.of_process = True


def _tasked(line: ParsedLine, match: re.Match[str]) -> None:
    line.task = int(match["n"])


def _tasked_on_host(line: ParsedLine, match: re.Match[str]) -> None:
    _tasked(line, match)
    _hosted(line, match)


def _local(line: ParsedLine, match: re.Match[str]) -> None:
    line.local_rank = int(match["n"])


_ISO = r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_UNIT = r"(?P<host>[A-Za-z0-9][\w.-]{0,100}+) (?:[\w./@-]{1,80}+\[(?P<pid>\d{1,9})\]|kernel): "
_DIGITS, _LOWER, _UPPER = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_Layer = tuple[re.Pattern[str], Callable[[ParsedLine, re.Match[str]], None]]

# First characters of a prefix, its pattern, and the function that stores what it says.
_PREFIX_FORMS: tuple[tuple[str, str, Callable[[ParsedLine, re.Match[str]], None]], ...] = (
    # torch, and Lightning's spelling of it
    ("[", rf"\[rank(?:{_RANK}\]: ?|: (?P<lightning>0|[1-9]\d{{0,6}})\] )", _ranked),
    ("[", C10.pattern, _c10),
    # torchrun --tee: role and local rank
    ("[", rf"\[(?:default|trainer(?:\d{{1,7}}\|)?){_RANK}\]:", _local),
    # mpirun --tag-output, and SageMaker's form of it
    ("[", rf"\[\d{{1,7}},{_RANK}\]<std(?:out|err|diag)>: ?", _tasked),
    ("[", rf"\[\d{{1,7}},mpirank:{_RANK},(?P<host>[\w.-]{{1,80}})\](?:<std(?:out|err)>)?:? ?", _tasked_on_host),
    # kubectl logs --prefix
    ("[", r"\[pod/(?P<host>[\w.-]{1,253}+)/[\w.-]{1,100}+\] ?", _hosted),
    ("p", r"pod/(?P<host>[\w.-]{1,253}+)(?:/| )[\w.-]{1,100}+:? ", _hosted),
    # Ray and SkyPilot
    ("(", r"\([^()\n]{0,120}?\bpid=(?P<pid>\d{1,9})(?:, ip=(?P<ip>[0-9a-fA-F.:]{3,45}+))?\) ?", _in_actor),
    # journald: -o short-iso, then short
    (_DIGITS, rf"{_ISO} {_UNIT}", _on_host),
    (_UPPER, rf"(?P<time>{SYSLOG_TIME}) {_UNIT}", _on_host),
    # container runtimes
    (_DIGITS, rf"{_ISO} (?:std(?:out|err) [FP] )?", _stamped),
    # docker compose
    (_DIGITS + _LOWER + _UPPER, r"(?P<host>[A-Za-z0-9][\w.-]{0,100}[-_]\d{1,5}) {1,40}\| ?", _hosted),
    # srun -l
    (" " + _DIGITS, rf" {{0,6}}{_RANK}:(?: |$)", _tasked),
    # pdsh and its like: an address, or a name that ends in a number
    (_DIGITS, r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}): ", _hosted),
    (_LOWER, r"(?P<host>(?:[a-z][a-z0-9]{0,30}-){1,6}[a-z0-9]{0,20}\d|(?:node|host|gpu|worker)-?\d{1,6}): ", _hosted),
    ("[", r"\[(?P<host>[A-Za-z](?:[\w.-]{0,80}\w)?)\]: ?", _hosted),
)  # fmt: skip

_LAYERS: dict[str, tuple[_Layer, ...]] = {
    first: tuple((re.compile(form), apply) for firsts, form, apply in _PREFIX_FORMS if first in firsts)
    for first in {first for firsts, _, _ in _PREFIX_FORMS for first in firsts}
}


def _find_group(message: str) -> Group | None:
    match = _GROUP.search(message[:400]) if "Rank " in message else None
    if match:
        name, desc = match["guid"] or match["name"], match["desc"] or match["desc_old"]
        return Group(clean(name), clean(desc) if desc else None, int(match["rank"]))
    rank_only = _GROUP_RANK.match(message[:40])
    return Group(None, None, int(rank_only["rank"])) if rank_only else None
