"""Large jobs, from measured parts: what a look costs a rank, a leader of 64, rank 0 and the host of the store.

Nobody here has 100,000 ranks. Every part of the tree (guard/leader.py) can be timed alone, and the rest is counting.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from torch._C._distributed_c10d import TCPStore

from forkpoint.guard.calls import BLOCKS, TAIL
from forkpoint.guard.messages import Beat, Calls, GroupBeat, RankHealth, decode, encode
from forkpoint.guard.summary import FAN_IN, Summary, levels_led, merge, summarise, without_closed_groups

_ODD = 0x9E3779B97F4A7C15
_CALLS_EVERY_S = 5.0
"""Reading a full ring of 2,000 calls takes 20 ms, and may take 0.4 % of the time."""


@dataclass(frozen=True, slots=True)
class Parts:
    """CPU seconds of one call each, and sizes in bytes."""

    groups: int
    beat_bytes: int
    encode_beat: float
    decode_beat: float
    calls_bytes: int
    """What a rank tells beside its beat when it has read its calls anew."""
    encode_calls: float
    decode_calls: float
    summary_bytes: int
    encode_summary: float
    decode_summary: float
    summarise: float
    """FAN_IN beats."""
    merge: float
    """FAN_IN summaries."""
    serve_set: float
    """In the process that serves the store."""
    serve_check: float
    serve_read: float
    """FAN_IN values in one request."""


@dataclass(frozen=True, slots=True)
class Projection:
    """CPU seconds per second, and bytes per second."""

    world: int
    levels: int
    rank_cpu: float
    leader_cpu: float
    top_cpu: float
    """Rank 0's guard."""
    store_cpu: float
    store_requests: float
    store_in: float
    store_out: float


def project(world: int, parts: Parts, every_s: float, checks: int) -> Projection:
    """`checks`: small requests of one rank in one look, beside the beat itself."""
    levels = levels_led(0, world)
    leaders = [-(-world // FAN_IN**level) for level in range(1, levels + 1)]
    told = sum(leaders[:-1])  # summaries that go up; the topmost leader tells nobody
    calls = min(1.0, every_s / _CALLS_EVERY_S)  # per look, on the average
    tell = parts.encode_beat + calls * parts.encode_calls
    read_beats = FAN_IN * (parts.decode_beat + calls * parts.decode_calls) + parts.summarise
    leader = tell + read_beats + parts.encode_summary
    upper = FAN_IN * parts.decode_summary + parts.merge + parts.encode_summary
    sets = world * (1 + calls) + told
    serve = sets * parts.serve_set + world * checks * parts.serve_check + sum(leaders) * (1 + calls) * parts.serve_read
    moved = world * (parts.beat_bytes + calls * parts.calls_bytes) + told * parts.summary_bytes
    return Projection(
        world=world,
        levels=levels,
        rank_cpu=tell / every_s,
        leader_cpu=leader / every_s,
        top_cpu=(leader + upper * (levels - 1)) / every_s,
        store_cpu=serve / every_s,
        store_requests=(sets + world * checks + sum(leaders) * (1 + calls)) / every_s,
        store_in=moved / every_s,
        store_out=moved / every_s,
    )


def make_told(rank: int, groups: int) -> tuple[Beat, Calls]:
    """As large as it gets: every group has a full tail and all its blocks."""
    tokens = {seq: seq * _ODD % 2**64 for seq in range(90_000, 90_000 + TAIL)}
    blocks = {block: block * _ODD % 2**64 for block in range(700, 700 + BLOCKS)}
    keys = [f"{number}#0123abcd" for number in range(groups)]
    told = dict.fromkeys(keys, GroupBeat(100_000, 90_063, 90_063, 600.0))
    beat = Beat(rank, 100_000, RankHealth.RUNNING, "", 0.1, "", told, 7, rank + 1)
    return beat, Calls(rank, 7, dict.fromkeys(keys, tokens), dict.fromkeys(keys, blocks), {})


def measure(groups: int) -> Parts:
    told = [make_told(rank, groups) for rank in range(FAN_IN)]
    told_beats, told_calls = [beat for beat, _ in told], [calls for _, calls in told]
    beat, calls = encode(told_beats[0]), encode(told_calls[0])
    summary = summarise(told_beats, told_calls, [])
    encoded = encode(without_closed_groups(summary))
    with _server() as server:
        serve_set, serve_check, serve_read = _serve_costs(server, beat)
    return Parts(
        groups=groups,
        beat_bytes=len(beat),
        encode_beat=_cpu(lambda: encode(told_beats[0])),
        decode_beat=_cpu(lambda: decode(beat, Beat)),
        calls_bytes=len(calls),
        encode_calls=_cpu(lambda: encode(told_calls[0])),
        decode_calls=_cpu(lambda: decode(calls, Calls)),
        summary_bytes=len(encoded),
        encode_summary=_cpu(lambda: encode(without_closed_groups(summary))),
        decode_summary=_cpu(lambda: decode(encoded, Summary)),
        summarise=_cpu(lambda: summarise(told_beats, told_calls, [])),
        merge=_cpu(lambda: merge([summary] * FAN_IN)),
        serve_set=serve_set,
        serve_check=serve_check,
        serve_read=serve_read,
    )


def _cpu(call: Callable[[], object]) -> float:
    """Of the best of five rounds: what is over that is the machine's."""
    taken: list[float] = []
    for _ in range(5):
        count, began = 0, time.thread_time()
        while (now := time.thread_time()) < began + 0.04:
            call()
            count += 1
        taken.append((now - began) / count)
    return min(taken)


@contextmanager
def _server() -> "Generator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "bench.guard.store_server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.kill()
        server.wait()


def _serve_costs(server: "subprocess.Popen[str]", beat: bytes) -> tuple[float, float, float]:
    """CPU seconds of the server for one set, one check, one reading of FAN_IN values."""
    port = int(_line(server))
    store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=30))
    keys = [f"forkpoint/guard/beat/{rank}" for rank in range(FAN_IN)]
    value = cast("str", beat)  # bytes are taken, whatever the stub says
    for key in keys:
        store.set(key, value)
    return (
        _served(server, store, lambda: store.set(keys[0], value), 5000),
        _served(server, store, lambda: store.check(["forkpoint/guard/verdict"]), 5000),
        _served(server, store, lambda: store.multi_get(keys), 500),
    )


def _served(server: "subprocess.Popen[str]", store: TCPStore, call: Callable[[], object], count: int) -> float:
    before = _asked(server)
    for _ in range(count):
        call()
    store.check(["until everything has arrived"])
    return (_asked(server) - before) / count


def _asked(server: "subprocess.Popen[str]") -> float:
    assert server.stdin is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return float(_line(server))


def _line(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    return server.stdout.readline()
