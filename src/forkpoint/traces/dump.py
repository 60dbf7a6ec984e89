"""Flight recorder dumps of every PyTorch version, pickle or JSON, as columns."""

import json
import re
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from forkpoint.errors import HostileInput, InputError, UnreadableInput
from forkpoint.model.layout import MAX_ITEMS
from forkpoint.traces.columns import ROW, DumpColumns, DumpHeader, GroupConfig, GroupStatus, Table, only_used
from forkpoint.traces.entries import EntryReader, are_integers, is_list, parse_ranks
from forkpoint.traces.fast import Layouts
from forkpoint.traces.pickles import SPARE_CONTAINERS, Machine

# ---------------------------------------------------------------------------------------------------------------------
# What a dump holds besides its entries, in any schema version.

TopLevel = dict[object, object]
"""A dump's outermost dict; empty for torch 2.2, which wrote a bare list of entries."""

_RANKS: Final = range(2**31)
_DECIMAL_DIGITS: Final = 18
TAKE_ANOTHER: Final = "take the file that the rank wrote"
MAX_GROUPS: Final = 8192
"""Groups that a dump may declare and use together; in a job with many groups a rank has a few hundred."""
_TOP_KEYS: Final = frozenset({"version", "entries", "pg_config", "pg_status"})


class End(Struct, frozen=True):
    """How reading a file ended."""

    broken: str | None
    """What is wrong with the bytes ("cut at byte 3012"); None when all were read."""
    bare_list: bool
    """The outermost value is the list of entries (torch 2.2)."""
    behind: int = 0
    """Number of bytes after the end of the dump."""


def finish(top: TopLevel, reader: EntryReader, end: End) -> DumpColumns:
    """The columns of a dump. Raises UnreadableInput if neither header nor entries hold anything useful."""
    if end.broken and not reader.read and "pg_status" not in top:
        raise UnreadableInput(f"{end.broken}, before its first entry; copy it again, or leave it out")
    if not end.bare_list and not _TOP_KEYS & top.keys() and not reader.read:
        raise UnreadableInput(f"not a flight recorder dump: it has neither entries nor groups; {TAKE_ANOTHER}")
    if reader.left_out and not reader.read:
        raise UnreadableInput(
            f"none of its {reader.left_out} entries can be understood ({reader.why_left_out}); leave it out"
        )
    groups = _read_groups(top.get("pg_config"), reader.table)
    if len(groups) + reader.table.groups > MAX_GROUPS:
        raise HostileInput(f"names {len(groups) + reader.table.groups} groups; no rank has that many, leave it out")
    header = DumpHeader(
        schema=_text(top, "version") or "",
        comm_lib_version=_text(top, "comm_lib_version") or _text(top, "nccl_version"),
        groups=groups,
        status=_read_status(top.get("pg_status")),
        rank=_rank(top.get("rank")),
        cut=_describe_cut(reader, end),
        unnamed=_read_unnamed(top.get("pg_config"), reader.table),
        behind=end.behind,
    )
    return reader.table.columns(header)


def _describe_cut(reader: EntryReader, end: End) -> str | None:
    """One sentence about what is missing."""
    parts: list[str] = []
    if end.broken:
        entries = "1 entry before it is" if reader.read == 1 else f"{reader.read or 'no'} entries before it are"
        parts.append(f"{end.broken}; {entries} used")
    if reader.left_out:
        entries = "1 entry" if reader.left_out == 1 else f"{reader.left_out} entries"
        parts.append(f"{entries} not understood ({reader.why_left_out})")
    return "; ".join(parts) or None


def _text(top: TopLevel, key: str) -> str | None:
    value = top.get(key)
    if value is not None and type(value) is not str:
        raise UnreadableInput(f"{key} is not text; leave the file out")
    return value


def _rank(value: object) -> int | None:
    return value if type(value) is int and value in _RANKS else None


def _read_groups(config: object, table: Table) -> tuple[GroupConfig, ...]:
    """`pg_config`: {name: {name, desc, ranks}}, and {number: ranks} before schema 2.1."""
    if config is None:
        return ()
    if not isinstance(config, dict):
        raise UnreadableInput("pg_config is not a dict; leave the file out")
    groups: list[GroupConfig] = []
    for key, value in config.items():
        if not isinstance(value, dict):
            groups.append(GroupConfig(str(key), "", _ranks(value, table)))
            continue
        name, desc = value.get("name", key), value.get("desc", "")
        if type(name) not in (str, int) or type(desc) is not str:
            raise UnreadableInput("a group in pg_config has no name or desc; leave the file out")
        table.spend_text(str(name), desc)
        # gloo registers groups before they have a name: the ranks under '' may belong to any of them.
        groups.append(GroupConfig(str(name), desc, _ranks(value.get("ranks"), table) if name != "" else None))
    return tuple(groups)


def _read_unnamed(config: object, table: Table) -> tuple[int, ...] | None:
    group = config.get("") if isinstance(config, dict) else None
    return _ranks(group.get("ranks"), table) if isinstance(group, dict) and group.get("name") == "" else None


def _ranks(value: object, table: Table) -> tuple[int, ...] | None:
    """Ranks from a list, or from text (schema 2.1 and later); None if empty."""
    if value is None:
        return None
    ranks: tuple[int, ...] | None = None
    if isinstance(value, str):
        ranks = parse_ranks(value) if value else ()
    elif is_list(value):
        table.spend(len(value))
        ranks = tuple(value) if are_integers(value) else None
    if ranks is None or min(ranks, default=0) not in _RANKS or max(ranks, default=0) not in _RANKS:
        raise UnreadableInput("ranks of a group in pg_config is not a list of ranks; leave the file out")
    table.spend(len(ranks))
    if len(ranks) > MAX_ITEMS:
        raise HostileInput(f"has a group of {len(ranks)} ranks; no job has that many, leave it out")
    return ranks or None


def _read_status(status: object) -> dict[int, GroupStatus]:
    """`pg_status`, by pg_id. The JSON form writes its numbers as text."""
    if status is None:
        return {}
    if not isinstance(status, dict):
        raise UnreadableInput("pg_status is not a dict; leave the file out")
    found: dict[int, GroupStatus] = {}
    for key, value in status.items():
        pg_id = _number(key)
        if pg_id is None or not isinstance(value, dict):
            raise UnreadableInput("pg_status is not keyed by pg_id; leave the file out")
        found[pg_id] = GroupStatus(*(_counter(value, which) for which in ("enqueued", "started", "completed")))
    return found


def _counter(status: dict[object, object], which: str) -> int:
    number = _number(status.get(f"last_{which}_collective", -1))
    if number is None:
        raise UnreadableInput(f"last_{which}_collective in pg_status is not an integer; leave the file out")
    return number


def _number(value: object) -> int | None:
    if type(value) is str and len(value) <= _DECIMAL_DIGITS and value.removeprefix("-").isdecimal():
        return int(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


# ---------------------------------------------------------------------------------------------------------------------
# The JSON form of a dump (`_dump_fr_trace_json`): no frames, numbers of `pg_status` as text, None as 0.

_ENTRIES = re.compile(r'"entries"\s*+:\s*+\[')
_BETWEEN_ENTRIES = re.compile(r"[\s,]*+")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
MAX_JSON: Final = 32 << 20
"""Bytes. JSON is parsed in one piece, and small strings and numbers take up to twelve times their size in the file."""
_BYTES_PER_VALUE: Final = 16
_TOO_DEEP = "is nested too deeply for a dump; no recorder writes that, leave it out"


def read_json(data: bytes) -> DumpColumns:
    """Decodes a dump. From a truncated file it returns the entries before the cut."""
    if len(data) > MAX_JSON:
        raise HostileInput(f"has {len(data)} bytes; the limit for a JSON dump is {MAX_JSON}; use the pickled dump")
    if data.count(b"{") + data.count(b"[") > len(data) // _BYTES_PER_VALUE + SPARE_CONTAINERS:
        raise HostileInput("has more lists and objects than a dump of its size can need; leave it out")
    # Half a surrogate pair cannot be printed; no recorder writes such escapes.
    text = _SURROGATE.sub(r"\\ufffd", data.decode("utf-8-sig", "replace"))
    reader = EntryReader(Table(len(data)))
    try:
        root: object = json.loads(text)
    except RecursionError:
        raise HostileInput(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        return _read_up_to(f"cut or damaged at character {error.pos}", text, reader)
    except ValueError:
        return _read_up_to("damaged (an invalid number)", text, reader)
    if not isinstance(root, dict):
        raise UnreadableInput(f"not a flight recorder dump: JSON, but not an object; {TAKE_ANOTHER}")
    entries = root.get("entries", [])
    if not isinstance(entries, list):
        raise UnreadableInput("entries is not a list; leave the file out")
    for entry in entries:
        reader.add(entry)
    return finish(root, reader, End(None, bare_list=False))


def _read_up_to(broken: str, text: str, reader: EntryReader) -> DumpColumns:
    top = _salvage_json(text, reader)
    return finish(top, reader, End(broken, bare_list=False))


def _salvage_json(text: str, reader: EntryReader) -> TopLevel:
    """Reads entries up to the first that is not valid JSON. Returns the keys before the entries."""
    start = _ENTRIES.search(text)
    if start is None:
        return {}
    try:
        _read_entries(text, start.end(), reader)
        top: object = json.loads(text[: start.start()].rstrip(" \t\r\n,") + "}")
    except RecursionError:
        raise HostileInput(_TOO_DEEP) from None
    except ValueError:
        return {}
    return top if isinstance(top, dict) else {}


def _read_entries(text: str, at: int, reader: EntryReader) -> None:
    read_one = json.JSONDecoder().raw_decode
    while (gap := _BETWEEN_ENTRIES.match(text, at)) and text.startswith("{", gap.end()):
        try:
            entry, at = read_one(text, gap.end())
        except ValueError:
            return
        reader.add(entry)


# ---------------------------------------------------------------------------------------------------------------------
# A pickled dump, read entry by entry: only a few entries exist as Python objects at any time.

_AFTER_ENTRY = (b"}", b"e")
"""Opcodes that can follow only a complete entry: the next entry begins, or the list ends."""


def read_pickle(data: bytes, *, fast: bool) -> DumpColumns:
    """Decodes a dump. From a truncated or damaged file it returns what comes before that place.

    `fast` changes only how long it takes.
    """
    machine = Machine(data)
    reader = EntryReader(Table(len(data)))
    layouts = Layouts(machine, reader) if fast else None
    broken = None
    try:
        while machine.run():
            last = _take_entries(machine, reader)
            if layouts and isinstance(last, dict):
                layouts.take_like(last)
        root = machine.root
    except UnreadableInput as error:
        broken = str(error)
        root = _salvage(machine, reader)
    top: TopLevel = root if isinstance(root, dict) else {}
    rest = root if isinstance(root, list) else top.get("entries", [])
    if not isinstance(rest, list):
        raise UnreadableInput("entries is not a list; leave the file out")
    _add_all(rest, reader)
    behind = 0 if broken else len(data) - machine.pos - 1  # STOP is the last
    return finish(top, reader, End(broken, isinstance(root, list), behind))


def _take_entries(machine: Machine, reader: EntryReader) -> object:
    """Moves the complete entries out of the machine. Returns the last one, if nothing unfinished follows it."""
    place = _entries_place(machine)
    if place is None or place[1] is not machine.stack:
        return None
    entries, waiting = place
    _add_all(entries, reader)
    if waiting and machine.data[machine.pos : machine.pos + 1] in _AFTER_ENTRY:
        last = waiting[-1]
        _add_all(waiting, reader)
        return last
    complete = waiting[:-1]
    del waiting[:-1]
    _add_all(complete, reader)
    return None


def _entries_place(machine: Machine) -> tuple[list[object], list[object]] | None:
    """The list of entries that is being read, and the values on the machine's stack that will go into it."""
    if not machine.marks:
        return None
    outer, inner = machine.marks[0], [*machine.marks[1:3], machine.stack]
    if len(outer) == 1 and type(outer[0]) is list:
        return outer[0], inner[0]  # torch 2.2: no dict around it
    if len(inner) == 1 or len(inner[0]) < 2:
        return None
    key, value = inner[0][-2:]
    return (value, inner[1]) if key == "entries" and type(value) is list else None


def _add_all(entries: list[object], reader: EntryReader) -> None:
    for entry in entries:
        reader.add(entry)
    entries.clear()


def _salvage(machine: Machine, reader: EntryReader) -> object:
    """The root, as far as it was read before the pickle ended or failed."""
    levels = [*machine.marks, machine.stack]
    root = levels[0][0] if levels[0] else None
    place = _entries_place(machine)
    if place is not None:
        entries, waiting = place
        _add_all(entries, reader)
        being_filled = waiting is not machine.stack
        # An empty dict is an entry that was just begun.
        _add_all([entry for entry in (waiting[:-1] if being_filled else waiting) if entry], reader)
    if not isinstance(root, dict) or len(levels) == 1:
        return root
    pairs = zip(levels[1][::2], levels[1][1::2], strict=False)
    # A container that is being read is still empty: it gets its items when it ends.
    return {**root, **{key: value for key, value in pairs if isinstance(key, str) and value not in ({}, [])}}


# ---------------------------------------------------------------------------------------------------------------------
# A process may destroy its groups and create them again, to resume: the recorder then holds both generations, with the
# same names and sequence numbers. Only the last one counts; ops of different generations do not belong together.

_DEFAULT = "default_pg"


def last_generation(columns: DumpColumns) -> DumpColumns:
    """Drops ops of groups that were created again later. `pg_id` numbers the groups that this process created."""
    count = len(columns.groups)
    newest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(newest, columns.group, columns.pg_id)
    keep = columns.pg_id == newest[columns.group]
    if keep.all():
        return columns
    made_again = set(columns.group[~keep].tolist())
    default = [g for g in made_again if columns.groups[g][1] == _DEFAULT]
    if default:  # destroying the default group destroys all others
        keep &= columns.pg_id >= newest[default].max()
    kept = replace(columns, **{name: getattr(columns, name)[keep] for name in ROW})
    group, groups = only_used(kept.group, kept.groups)
    return replace(kept, group=group, groups=groups)


MAX_BYTES = 64 << 20
"""Size limit of a file: 325,000 entries. The recorder keeps 2,000 by default."""

_WORTH_LAYOUTS = 16 << 10
"""File size in bytes above which learning the layout of entries pays off."""

_PICKLE = re.compile(rb"\x80[\x02-\x05]")  # no text begins so
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_JSON_KEY = re.compile(rb'"(?:entries|pg_config|pg_status)"\s*+:|\{\s*+"version"\s*+:\s*+"[0-9]+\.[0-9]+"')


def looks_like_dump(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a dump. A few hundred are enough."""
    if _JSON.match(head):
        return _JSON_KEY.search(head) is not None
    return _PICKLE.match(head) is not None


def decode(data: bytes, name: str) -> DumpColumns:
    """One dump as columns, without groups that were created again later.

    Raises an InputError whose message is one line and starts with `name`.
    """
    try:
        return last_generation(_decode(data))
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None


def _decode(data: bytes) -> DumpColumns:
    if not data:
        raise UnreadableInput("is empty: its rank died while writing it; look at that rank's log")
    if len(data) > MAX_BYTES:
        raise HostileInput(f"has {len(data)} bytes; the limit for a dump is {MAX_BYTES}; leave it out")
    if data[0] == 0x80:
        return read_pickle(data, fast=len(data) >= _WORTH_LAYOUTS)
    if _JSON.match(data):
        return read_json(data)
    raise UnreadableInput(f"not a flight recorder dump: neither a pickle nor JSON; {TAKE_ANOTHER}")
