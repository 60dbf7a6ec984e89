"""Flight recorder dumps of every PyTorch version, pickle or JSON, as columns.

Dumps are untrusted: nothing in them is executed, and none can exhaust the machine.
"""

import re

from forkpoint.errors import HostileInput, InputError, UnreadableInput
from forkpoint.ingest.flight_recorder.columns import DumpColumns, DumpHeader, GroupConfig, GroupStatus
from forkpoint.ingest.flight_recorder.generations import last_generation
from forkpoint.ingest.flight_recorder.header import TAKE_ANOTHER
from forkpoint.ingest.flight_recorder.json_dump import read_json
from forkpoint.ingest.flight_recorder.stream import read_pickle

__all__ = ["MAX_BYTES", "DumpColumns", "DumpHeader", "GroupConfig", "GroupStatus", "decode", "looks_like_dump"]

MAX_BYTES = 64 << 20
"""Of one file: 325,000 entries. The recorder keeps 2,000 unless told otherwise."""

_WORTH_LAYOUTS = 16 << 10
"""Bytes from which on learning an entry's layout pays."""

_PICKLE = re.compile(rb"\x80[\x02-\x05]")  # no text begins so
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\{")
_JSON_KEY = re.compile(rb'"(?:entries|pg_config|pg_status)"\s*+:|\{\s*+"version"\s*+:\s*+"[0-9]+\.[0-9]+"')


def looks_like_dump(head: bytes) -> bool:
    """Whether a file that begins so is a dump. A few hundred bytes are enough."""
    if _JSON.match(head):
        return _JSON_KEY.search(head) is not None
    return _PICKLE.match(head) is not None


def decode(data: bytes, name: str) -> DumpColumns:
    """One dump as columns, without groups that were made again later.

    Raises an InputError that begins with `name` and fits on a line.
    """
    try:
        return last_generation(_decode(data))
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None


def _decode(data: bytes) -> DumpColumns:
    if not data:
        raise UnreadableInput("is empty: its rank died while it wrote; look at that rank's log")
    if len(data) > MAX_BYTES:
        raise HostileInput(f"has {len(data)} bytes, and a dump may have {MAX_BYTES}; leave it out")
    if data[0] == 0x80:
        return read_pickle(data, fast=len(data) >= _WORTH_LAYOUTS)
    if _JSON.match(data):
        return read_json(data)
    raise UnreadableInput(f"not a flight recorder dump: neither a pickle nor JSON; {TAKE_ANOTHER}")
