"""Ten megabytes of anything: no crash, and no rank that is not written there."""

import random
import re

from forkpoint.evidence.logs import LogReading, read_log
from ingest.live_stacks.recorded import SAMPLES as STACKS
from ingest.logs.sample_lines import SAMPLES

SIZE = 2_000_000
WRITTEN = re.compile(
    rb"\[rank(?:: )?(\d+)\]|(?:^|[\r\n ])(\d+):(?: |$)|\[\d+,(?:mpirank:)?(\d+)|rank\s*: (\d+) \(|global rank: (\d+)"
    rb"|=== Rank (\d+)",
    re.MULTILINE,
)

CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e]")


def written_ranks(log: bytes) -> set[int]:
    return {int(text) for groups in WRITTEN.findall(log) for text in groups if text}


def check(log: bytes, reading: LogReading) -> None:
    told = {event.rank for event in reading.events} | {one.rank for one in reading.stacks}
    named = {rank for rank in told if rank is not None} | reading.speakers

    assert named <= written_ranks(log)
    assert reading.bytes == len(log)
    texts = [text for event in reading.events for text in (event.text, *(value for _, value in event.details))]
    assert [text for text in texts if len(text) > 300 or CONTROL.search(text)] == []


def test_random_bytes_say_nothing() -> None:
    log = random.Random(1).randbytes(SIZE)
    reading = read_log(log, "noise", None)

    assert reading.events == ()
    check(log, reading)


def mutated(text: bytes, rng: random.Random) -> bytes:
    line = bytearray(text)
    for _ in range(rng.randrange(4)):
        place = rng.randrange(len(line) + 1)
        match rng.randrange(5):
            case 0:
                line[place:place] = rng.randbytes(rng.randrange(1, 6))
            case 1:
                del line[place : place + rng.randrange(1, 30)]
            case 2:
                line[place : place + 1] = rng.choice(
                    [b"\0", b"\r", b"\n", b"\x1b[", b"]", b":", b"9" * 30, b"\xff", b" "]
                )
            case 3:
                line = line[:place] + line[: rng.randrange(len(line) + 1)]
            case _:
                line *= rng.choice([1, 1, 1, 3])
    return bytes(line)


def test_mutated_lines_name_no_rank_that_is_not_written() -> None:
    rng = random.Random(2)
    seeds = [sample.text.encode() for sample in SAMPLES]
    seeds += [
        b"[rank3]: Traceback (most recent call last):",
        b'[rank3]:   File "a.py", line 1, in f',
        b"[rank3]: KeyError: 1",
    ]
    seeds += [b"Root Cause (first observed failure):", b"  rank      : 10 (local_rank: 2)", b"Last error:", b"7: text"]
    seeds += [b'{"message": {"message": "E: x", "extraInfo": {"py_callstack": "Traceback"}}}', b"[default1]:[rank2]: x"]
    stacks = [path.read_bytes().splitlines() for path in sorted(STACKS.iterdir())]
    seeds += [b"[rank%d]: %s" % (number, line) for number, text in enumerate(stacks) for line in text[:40]]
    lines: list[bytes] = []
    size = 0
    while size < SIZE:
        lines.append(mutated(rng.choice(seeds), rng))
        size += len(lines[-1]) + 1
    log = b"\n".join(lines)

    check(log, read_log(log, "mutated", None))


def test_a_log_without_a_single_newline_is_read_in_pieces() -> None:
    reading = read_log(b"CUDA error: x " * 700_000, "line", None)

    assert (reading.lines, len({event.line for event in reading.events})) == (1, 1)
