"""What a dump says beside its entries, in any schema version."""

from dataclasses import dataclass
from typing import Final

from forkpoint.errors import UnreadableInput
from forkpoint.ingest.flight_recorder.columns import DumpColumns, DumpHeader, GroupConfig, GroupStatus
from forkpoint.ingest.flight_recorder.entries import EntryReader, are_integers, is_list
from forkpoint.ingest.flight_recorder.names import parse_ranks
from forkpoint.ingest.flight_recorder.table import Table

TopLevel = dict[object, object]
"""A dump's outermost dict; empty for torch 2.2, which wrote a bare list of entries."""

_RANKS: Final = range(2**31)
_DECIMAL_DIGITS: Final = 18
TAKE_ANOTHER: Final = "take the file that the rank wrote"
_KEYS: Final = frozenset({"version", "entries", "pg_config", "pg_status"})


@dataclass(frozen=True, slots=True)
class End:
    """How the reading of a file ended."""

    broken: str | None
    """What is wrong with the bytes ("cut at byte 3012"); None when all were read."""
    bare_list: bool
    """The entries were the outermost value."""


def finish(top: TopLevel, reader: EntryReader, end: End) -> DumpColumns:
    """Header and entries together. Raises UnreadableInput when there is nothing to work with in them."""
    if end.broken and not reader.read and "pg_status" not in top:
        raise UnreadableInput(f"{end.broken}, before its first entry; copy it again, or leave it out")
    if not end.bare_list and not _KEYS & top.keys() and not reader.read:
        raise UnreadableInput(f"not a flight recorder dump: neither entries nor groups in it; {TAKE_ANOTHER}")
    if reader.left_out and not reader.read:
        raise UnreadableInput(
            f"none of its {reader.left_out} entries can be understood ({reader.why_left_out}); leave it out"
        )
    header = DumpHeader(
        schema=_text(top, "version") or "",
        comm_lib_version=_text(top, "comm_lib_version") or _text(top, "nccl_version"),
        groups=_read_groups(top.get("pg_config"), reader.table),
        status=_read_status(top.get("pg_status")),
        rank=_rank(top.get("rank")),
        cut=_describe_cut(reader, end),
        unnamed=_read_unnamed(top.get("pg_config"), reader.table),
    )
    return reader.table.columns(header)


def _describe_cut(reader: EntryReader, end: End) -> str | None:
    """One sentence about what is missing."""
    said: list[str] = []
    if end.broken:
        entries = "1 entry before it is" if reader.read == 1 else f"{reader.read or 'no'} entries before it are"
        said.append(f"{end.broken}; {entries} used")
    if reader.left_out:
        entries = "1 entry" if reader.left_out == 1 else f"{reader.left_out} entries"
        said.append(f"{entries} not understood ({reader.why_left_out})")
    return "; ".join(said) or None


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
        # gloo registers its groups before they have a name: the ranks under '' are those of any of them.
        groups.append(GroupConfig(str(name), desc, _ranks(value.get("ranks"), table) if name != "" else None))
    return tuple(groups)


def _read_unnamed(config: object, table: Table) -> tuple[int, ...] | None:
    group = config.get("") if isinstance(config, dict) else None
    return _ranks(group.get("ranks"), table) if isinstance(group, dict) and group.get("name") == "" else None


def _ranks(value: object, table: Table) -> tuple[int, ...] | None:
    """Ranks as a list, or as text (which is how schema 2.1 and later write them); None for an empty one."""
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
