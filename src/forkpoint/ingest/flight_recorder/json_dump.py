"""The JSON form of a dump (`_dump_fr_trace_json`): no frames, numbers of `pg_status` as text, None as 0."""

import json
import re

from forkpoint.errors import HostileInput, UnreadableInput
from forkpoint.ingest.flight_recorder.columns import DumpColumns
from forkpoint.ingest.flight_recorder.entries import EntryReader
from forkpoint.ingest.flight_recorder.header import TAKE_ANOTHER, End, TopLevel, finish
from forkpoint.ingest.flight_recorder.table import Table

_ENTRIES = re.compile(r'"entries"\s*+:\s*+\[')
_BETWEEN_ENTRIES = re.compile(r"[\s,]*+")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TOO_DEEP = "is nested too deep for a dump; no recorder writes that, leave it out"


def read_json(data: bytes) -> DumpColumns:
    """Decodes a dump. A file that is cut gives the entries before the cut."""
    # Half a surrogate pair is text that cannot be printed; no recorder escapes what is beyond ASCII.
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
    top = _salvage(text, reader)
    return finish(top, reader, End(broken, bare_list=False))


def _salvage(text: str, reader: EntryReader) -> TopLevel:
    """Reads entry by entry up to the place that is not JSON. Returns what comes before the entries."""
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
