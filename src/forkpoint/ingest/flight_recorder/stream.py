"""A pickled dump, read entry by entry: no more than a few of them are ever held as Python objects."""

from forkpoint.errors import UnreadableInput
from forkpoint.ingest.flight_recorder.columns import DumpColumns
from forkpoint.ingest.flight_recorder.entries import EntryReader
from forkpoint.ingest.flight_recorder.fast import Layouts
from forkpoint.ingest.flight_recorder.header import End, TopLevel, finish
from forkpoint.ingest.flight_recorder.table import Table
from forkpoint.traces.pickles import Machine

_AFTER_ENTRY = (b"}", b"e")
"""Opcodes before which an entry is surely complete: the next one begins, or the list ends."""


def read_pickle(data: bytes, *, fast: bool) -> DumpColumns:
    """Decodes a dump. A file that is cut or damaged gives what comes before that place.

    `fast` changes only the time it takes.
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
    return finish(top, reader, End(broken, bare_list=isinstance(root, list)))


def _take_entries(machine: Machine, reader: EntryReader) -> object:
    """Moves the entries that are complete out of the machine. Returns the last, if nothing is left behind it."""
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
    """The list of entries while it is being read, and the machine's stack of values that will go into it."""
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
    """The root as far as it was read, when the pickle broke off."""
    levels = [*machine.marks, machine.stack]
    root = levels[0][0] if levels[0] else None
    place = _entries_place(machine)
    if place is not None:
        entries, waiting = place
        _add_all(entries, reader)
        being_filled = waiting is not machine.stack
        # An empty dict is an entry that has only begun.
        _add_all([entry for entry in (waiting[:-1] if being_filled else waiting) if entry], reader)
    if not isinstance(root, dict) or len(levels) == 1:
        return root
    pairs = zip(levels[1][::2], levels[1][1::2], strict=False)
    # What is being read is still empty: a container gets its items at its end.
    return {**root, **{key: value for key, value in pairs if isinstance(key, str) and value not in ({}, [])}}
