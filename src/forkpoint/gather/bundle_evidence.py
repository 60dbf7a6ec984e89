"""Prepares evidence for a bundle: opens it, gives it a name that reveals nothing of the site, and redacts it."""

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum, auto
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast

from msgspec import Struct, structs

from forkpoint.errors import HostileInput, UsageError
from forkpoint.evidence import WAY_OUT
from forkpoint.evidence.archives import open_members
from forkpoint.evidence.files import SNIFF, STDIN, find_files, is_archive, open_file
from forkpoint.evidence.links import LeadsOut
from forkpoint.knowledge.variables import may_be_shown
from forkpoint.model.capture import Problem
from forkpoint.model.verdict import Verdict
from forkpoint.redact import Redactor
from forkpoint.redact.environments import mask_environments
from forkpoint.redact.logs import Lines, pieces
from forkpoint.traces.dump import MAX_BYTES, decode, looks_like_dump
from forkpoint.traces.pickles import BINUNICODE, BYTES, FRAME, MEMO_GETS, MEMO_PUTS, PROTO, TEXTS, opcodes

# ---------------------------------------------------------------------------------------------------------------------
# The files behind the paths, archives member by member, as streams that are read once.

MAP_SCHEMA = "forkpoint.map/1"


class EvidenceKind(StrEnum):
    TEXT = auto()
    DUMP = auto()


@dataclass(frozen=True, slots=True)
class FoundEvidence:
    path: str
    """Its path, or its name inside an archive; relative to the path that the user gave."""
    kind: EvidenceKind
    stream: BinaryIO


def evidence_files(
    paths: Sequence[str], unless: Sequence[str], leave_out: Sequence[str] = (), *, follow_links: bool = False
) -> list[str]:
    """`unless`: files that are written now. `leave_out`: patterns of names or paths. Raises UsageError."""
    if STDIN in paths:
        raise UsageError("bundle reads evidence more than once: save standard input to a file first")
    own = {str(Path(path).resolve()) for path in unless}
    return [
        path
        for path in find_files(paths, follow_links=follow_links)
        if str(Path(path).resolve()) not in own
        and not any(fnmatchcase(path, wanted) or fnmatchcase(Path(path).name, wanted) for wanted in leave_out)
    ]


def open_evidence(path: str, roots: Sequence[str], *, follow_links: bool = False) -> Iterator[FoundEvidence | Problem]:
    """Read each stream before you take the next."""
    try:
        with open_file(path, () if follow_links else roots) as stream:
            if not is_archive(stream.peek(SNIFF)[:SNIFF]):
                yield _classified(stream, relative_name(path, roots))
                return
            for member in open_members(cast("BinaryIO", stream), path):
                if isinstance(member, Problem):
                    yield Problem(relative_name(member.file, roots), member.text)
                else:
                    inside = io.BufferedReader(cast("io.FileIO", member.stream), SNIFF)
                    yield _classified(inside, relative_name(member.name, roots))
    except LeadsOut:
        yield Problem(relative_name(path, roots), WAY_OUT)
    except OSError as error:
        yield Problem(relative_name(path, roots), f"cannot be read ({error.strerror}); check its permissions")


def _classified(stream: "io.BufferedReader[io.FileIO]", path: str) -> FoundEvidence | Problem:
    head = stream.peek(SNIFF)[:SNIFF]
    if MAP_SCHEMA.encode() in head[:100]:
        return Problem(path, "a map of pseudonyms: it must not leave this machine")
    if looks_like_dump(head):
        return FoundEvidence(path, EvidenceKind.DUMP, cast("BinaryIO", stream))
    if b"\x00" in head:
        return Problem(path, "neither a dump nor text: it cannot be redacted")
    return FoundEvidence(path, EvidenceKind.TEXT, cast("BinaryIO", stream))


def relative_name(path: str, roots: Sequence[str]) -> str:
    """The path from the given folder on; for a single file from its parent folder, which may contain the rank."""
    for root in roots:
        if path == root or path.startswith(f"{root.rstrip('/')}/"):
            above = Path(root).resolve() if Path(root).is_dir() else Path(root).resolve().parent
            inside = path[len(root) :] if Path(root).is_dir() else f"/{Path(root).name}{path[len(root) :]}"
            return f"{above.name}/{inside.lstrip('/')}"
    return Path(path).name


# ---------------------------------------------------------------------------------------------------------------------
# Names of evidence inside a bundle: they show the rank and the kind of file, and nothing of the site.
#
# A name is split where letters and digits end. Words and numbers stay; what could be a key is masked, since a file name
# has no context by which `redact` would recognise it.

_PARTS = re.compile(r"\[masked-[a-z0-9-]+\]|[A-Za-z0-9]+")
_PLAIN = re.compile(r"[A-Za-z]{0,24}[0-9]{0,14}|[0-9]{1,8}[Tt][0-9]{1,6}Z?|[A-Za-z0-9]{1,6}")
_ODD = re.compile(r"[^\w./=+,@%\[\]-]", re.ASCII)
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,250}")
_BETWEEN = re.compile(r"([.-]+)")
_LONGEST = 120
_SHORTEST = 3
"""Shortest known name that is searched for inside another."""


class BundleNames:
    def __init__(self, redact: Callable[[str], str], known: Mapping[str, str]) -> None:
        """`known`: pseudonyms by original. In file names originals are also found between underscores."""
        self._redact = redact
        self._known = known
        self._taken: set[str] = set()

    def name(self, path: str) -> str:
        """A relative path that no other evidence has."""
        parts = [part for part in PurePosixPath(self.harmless(path)).parts if part not in ("/", "..")]
        wanted = "/".join(part[-_LONGEST:] for part in parts) or "file"
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{number}/{wanted}"
        self._taken.add(name)
        return f"evidence/{name}"

    def harmless(self, path: str) -> str:
        text = _RUN.sub(lambda run: self._without_known(run[0]), self._redact(path))
        text = _PARTS.sub(lambda part: part[0] if part[0][0] == "[" or _PLAIN.fullmatch(part[0]) else "masked", text)
        return _ODD.sub("_", text)

    def _without_known(self, run: str) -> str:
        """Longest first: `gpu-1.dc` before `gpu-1`."""
        parts = _BETWEEN.split(run)  # words at even places, separators at odd ones
        for length in range(len(parts), 0, -2):
            for start in range(0, len(parts) - length + 1, 2):
                word = "".join(parts[start : start + length])
                if len(word) >= _SHORTEST and word in self._known:
                    rest = "".join(parts[:start]), "".join(parts[start + length :])
                    return self._without_known(rest[0]) + self._known[word] + self._without_known(rest[1])
        return run


# ---------------------------------------------------------------------------------------------------------------------
# Redacts a dump: copies the pickle opcode by opcode, with each string redacted.
#
# Nothing is decoded to objects, so sharing, order and the end of a truncated file stay as they were, and torch's own
# tools can read the result. Only dumps that `decode` accepts are rewritten.

_RECORDER_WORDS = frozenset({
    "version", "entries", "pg_config", "pg_status", "nccl_comm_state", "comm_lib_version", "nccl_version", "rank", "name",
    "desc", "ranks", "frames", "filename", "line", "record_id", "pg_id", "process_group", "seq_id", "collective_seq_id",
    "p2p_seq_id", "op_id", "is_p2p", "profiling_name", "time_created_ns", "time_created_us", "time_discovered_started_ns",
    "time_discovered_completed_ns", "duration_ms", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "state",
    "retired", "timeout_ms", "thread_id", "thread_name", "last_enqueued_collective", "last_started_collective",
    "last_completed_collective", "scheduled", "started", "completed",
})  # fmt: skip
"""The recorder's own words stay, even if a log uses one as a host name."""


def redact_dump(data: bytes, name: str, redact: Callable[[str], str]) -> bytes:
    """Raises an InputError for what is not a dump."""
    decode(data[: MAX_BYTES + 1], name)
    if data[0] != PROTO:
        return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    out = bytearray()
    given_away = _given_away(data, redact)
    # Only complete opcodes: half a string at the end of a truncated file could be half a secret.
    for op, begin, inside, end in opcodes(data):
        if op in BYTES:
            raise HostileInput(
                f"{name}: contains bytes, which cannot be redacted; no recorder writes them, leave it out"
            )
        if op in TEXTS:
            text = _text(data[inside:end])
            out += _rewritten(_MASKED_VALUE if text in given_away else text, redact)
        elif op != FRAME:  # its length is no longer true, and it only helps to read ahead
            out += data[begin:end]
    return bytes(out)


def _rewritten(text: str, redact: Callable[[str], str]) -> bytes:
    raw = (text if text in _RECORDER_WORDS else redact(text)).encode("utf-8", "surrogateescape")
    return bytes((BINUNICODE,)) + len(raw).to_bytes(4, "little") + raw


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


_MASKED_VALUE = "[masked-value]"


def _given_away(data: bytes, redact: Callable[[str], str]) -> frozenset[str]:
    """Strings that follow the name of a secret, as a value follows its key, also if the memo repeats either."""

    @cache
    def names_secret(text: str) -> bool:
        made = f"{text}=Xq7Zk29TbWm4Lc8R"
        return len(text) < _NAME_AT_MOST and text not in _RECORDER_WORDS and redact(made) != made

    found: set[str] = set()
    variables: set[tuple[str, str]] = set()
    memo: list[str | None] = []
    before: str | None = None
    for op, begin, inside, end in opcodes(data):
        if op in MEMO_PUTS:
            memo.append(before)
            continue
        is_text = op in TEXTS
        text = _text(data[inside:end]) if is_text else _recalled(op, data[begin + 1 : end], memo)
        if text is not None and before is not None and text not in _RECORDER_WORDS and names_secret(before):
            pair = f"{before} {text}" if before.startswith("-") else f"{before}={text}"
            if redact(pair).endswith(_MASKED_VALUE):
                found.add(text)
        if text is not None and before is not None and _VARIABLE.fullmatch(before):
            variables.add((before, text))
        before = text
    if {name for name, _ in variables} >= _OF_ENVIRONMENTS:
        found |= {text for name, text in variables if not may_be_shown(name)}
    return frozenset(found)


_VARIABLE = re.compile("[A-Z_][A-Z0-9_]{1,100}")
_OF_ENVIRONMENTS = frozenset({"PATH", "HOME"})
"""Names whose presence shows that a dump holds an environment, as in a log."""


def _recalled(op: int, place: bytes, memo: list[str | None]) -> str | None:
    number = int.from_bytes(place, "little")
    return memo[number] if op in MEMO_GETS and number < len(memo) else None


_NAME_AT_MOST = 100


# ---------------------------------------------------------------------------------------------------------------------
# Redacts evidence: logs piece by piece, dumps whole; pseudonyms are given in the order of the evidence.


class Redacting:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._lines = Lines(redactor)
        self.counts: Counter[str] = Counter()
        """What was replaced in evidence, not counting file names."""

    def redact(self, found: FoundEvidence) -> Iterator[bytes]:
        """The redacted content, in pieces. Raises an InputError at once for a damaged dump."""
        if found.kind is EvidenceKind.TEXT:
            return (self._counted(lambda part=part: self._lines.redact(part)) for part in pieces(found.stream))
        data = found.stream.read(MAX_BYTES + 1)
        return iter([self._counted(lambda: redact_dump(data, found.path, self._redactor.redact))])

    def _counted(self, redact: Callable[[], bytes]) -> bytes:
        before = Counter(self._redactor.names.counts)
        done = redact()
        self.counts += self._redactor.names.counts - before
        return done


# ---------------------------------------------------------------------------------------------------------------------
# Doctor reports of nodes, redacted for a bundle.

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

_ENVIRONMENTS = frozenset({"environ", "environment", "env"})


def read_doctor(path: str, redact: Callable[[str], str]) -> bytes:
    """The report with every string redacted, and only variables that may be shown. Raises UsageError."""

    def told(text: str) -> str:
        return redact(
            mask_environments(text.encode("utf-8", "surrogatepass"), Counter()).decode("utf-8", "surrogatepass")
        )

    try:
        report: Json = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"--doctor {path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--doctor {path}: is not JSON; write it with `forkpoint doctor --json`") from error
    return json.dumps(_redacted_json(report, "", told), indent=2).encode() + b"\n"


def _redacted_json(value: Json, key: str, redact: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted_json(item, key, redact) for item in value]
    if isinstance(value, dict):
        kept = value if key not in _ENVIRONMENTS else {name: value[name] for name in value if may_be_shown(name)}
        return {redact(name): _redacted_json(item, name.lower(), redact) for name, item in kept.items()}
    return value


# ---------------------------------------------------------------------------------------------------------------------
# The same verdict with every string redacted.

_T = TypeVar("_T")


def redact_verdict(verdict: Verdict, redact: Callable[[str], str]) -> Verdict:
    return _redacted_value(verdict, redact)


def _redacted_value(value: _T, redact: Callable[[str], str]) -> _T:
    """Recurses through dataclasses, Structs, tuples and dicts. Enums are forkpoint's own words and stay."""
    said: object = value
    if type(value) is str:
        said = redact(value)
    elif isinstance(value, tuple):
        said = tuple(_redacted_value(item, redact) for item in cast("tuple[object, ...]", value))
    elif isinstance(value, dict):
        said = {
            _redacted_value(k, redact): _redacted_value(v, redact)
            for k, v in cast("dict[object, object]", value).items()
        }
    elif isinstance(value, Struct):
        said = structs.replace(
            value, **{name: _redacted_value(getattr(value, name), redact) for name in value.__struct_fields__}
        )
    elif is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: _redacted_value(getattr(value, field.name), redact) for field in fields(value) if field.init
        }
        said = replace(cast("Any", value), **changed)
    return cast("_T", said)
