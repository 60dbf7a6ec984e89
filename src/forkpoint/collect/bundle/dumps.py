"""Redacts a dump: copies the pickle opcode by opcode, with each text redacted.

Nothing is decoded to objects, so that sharing, order and the place where a cut file ends stay as they were, and torch's
own tools read the result. Only dumps that `decode` accepts are rewritten.
"""

from collections.abc import Callable

from forkpoint.errors import HostileInput
from forkpoint.ingest.flight_recorder import MAX_BYTES, decode
from forkpoint.traces.pickles import BINUNICODE, BYTES, FRAME, PROTO, TEXTS, opcodes

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
    """The dump without what must not leave. Raises an InputError for what is not a dump."""
    decode(data[: MAX_BYTES + 1], name)
    if data[0] != PROTO:
        return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    out = bytearray()
    # Only whole opcodes: half a text at the end of a cut file could be half a secret.
    for op, begin, inside, end in opcodes(data):
        if op in BYTES:
            raise HostileInput(f"{name}: holds bytes, which cannot be redacted; no recorder writes them, leave it out")
        if op in TEXTS:
            out += _rewritten(data[inside:end], redact)
        elif op != FRAME:  # it states a length that no longer holds, and only helps to read ahead
            out += data[begin:end]
    return bytes(out)


def _rewritten(raw: bytes, redact: Callable[[str], str]) -> bytes:
    text = raw.decode("utf-8", "surrogateescape")
    if text not in _WORDS:
        raw = redact(text).encode("utf-8", "surrogateescape")
    return bytes((BINUNICODE,)) + len(raw).to_bytes(4, "little") + raw
