"""Redacts a dump: copies the pickle opcode by opcode, with each text redacted.

Nothing is decoded to objects, so that sharing, order and the place where a cut file ends stay as they were, and torch's
own tools read the result. Opcodes other than plain data are refused, as in `ingest.flight_recorder`.
"""

from collections.abc import Callable
from struct import Struct, error

from forkpoint.errors import HostileInput
from forkpoint.ingest.flight_recorder import MAX_BYTES, decode

_U4 = Struct("<I")
_U8 = Struct("<Q")
_PROTO, _FRAME, _STOP, _BINUNICODE = 0x80, 0x95, 0x2E, 0x58
_TEXTS = {0x8C: 1, _BINUNICODE: 4, 0x8D: 8}
_BYTES = {0x43: 1, 0x42: 4, 0x8E: 8}
_INTEGERS = {0x8A: 1, 0x8B: 4}
"""Opcode -> bytes of the length that follows it."""
_FIXED = {
    _PROTO: 1, 0x28: 0, 0x4E: 0, 0x88: 0, 0x89: 0, 0x4A: 4, 0x4B: 1, 0x4D: 2, 0x47: 8, 0x7D: 0, 0x5D: 0, 0x29: 0, 0x85: 0,
    0x86: 0, 0x87: 0, 0x74: 0, 0x61: 0, 0x65: 0, 0x73: 0, 0x75: 0, 0x94: 0, 0x71: 1, 0x72: 4, 0x68: 1, 0x6A: 4, _STOP: 0,
}  # fmt: skip
"""Opcode -> bytes of its operand."""
_WORDS = frozenset({
    "version", "entries", "pg_config", "pg_status", "nccl_comm_state", "comm_lib_version", "nccl_version", "rank", "name",
    "desc", "ranks", "frames", "filename", "line", "record_id", "pg_id", "process_group", "seq_id", "collective_seq_id",
    "p2p_seq_id", "op_id", "is_p2p", "profiling_name", "time_created_ns", "time_created_us", "time_discovered_started_ns",
    "time_discovered_completed_ns", "duration_ms", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "state",
    "retired", "timeout_ms", "thread_id", "thread_name", "last_enqueued_collective", "last_started_collective",
    "last_completed_collective", "scheduled", "started", "completed",
})  # fmt: skip
"""The recorder's own words stay, even if a log uses one as a host name."""


def redact_dump(data: bytes, name: str, redact: Callable[[str], str]) -> bytes:
    """The redacted dump. Raises an InputError for anything else."""
    decode(data[: MAX_BYTES + 1], name)
    if data[0] != _PROTO:
        return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    out = bytearray()
    pos = 0
    # Only whole opcodes: half a text at the end of a cut file could be half a secret.
    while (after := _end(data, pos, name)) is not None:
        op = data[pos]
        if op in _TEXTS:
            out += _rewritten(data[pos + 1 + _TEXTS[op] : after], redact)
        elif op != _FRAME:  # it states a length that no longer holds, and only helps to read ahead
            out += data[pos:after]
        if op == _STOP:
            break
        pos = after
    return bytes(out)


def _end(data: bytes, pos: int, name: str) -> int | None:
    """Where the opcode at `pos` ends; None: the file is cut or damaged there."""
    if pos >= len(data):
        return None
    op = data[pos]
    try:
        if op in _TEXTS:
            after = pos + 1 + _TEXTS[op] + _length(data, pos + 1, _TEXTS[op])
        elif op in _INTEGERS:
            after = pos + 1 + _INTEGERS[op] + _length(data, pos + 1, _INTEGERS[op])
        elif op in _BYTES:
            raise HostileInput(f"{name}: holds bytes, which cannot be redacted; no recorder writes them, leave it out")
        else:
            after = pos + 9 if op == _FRAME else pos + 1 + _FIXED[op]
    except (IndexError, KeyError, error):
        return None
    return after if after <= len(data) else None


def _length(data: bytes, pos: int, size: int) -> int:
    if size == 1:
        return data[pos]
    return (_U4 if size == 4 else _U8).unpack_from(data, pos)[0]


def _rewritten(raw: bytes, redact: Callable[[str], str]) -> bytes:
    text = raw.decode("utf-8", "surrogateescape")
    if text not in _WORDS:
        raw = redact(text).encode("utf-8", "surrogateescape")
    return bytes((_BINUNICODE,)) + _U4.pack(len(raw)) + raw
