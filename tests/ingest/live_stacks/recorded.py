"""Stacks as the tools wrote them, with neutral paths, some with fewer threads.

faulthandler of Python 3.11.7 and 3.13.0; py-spy 0.4.3 on Python 3.11.2, 3.11.7 and 3.13.0; gdb 13.1 with the extension of
Python 3.11.7; torch 2.13.0's debug server, two ranks on gloo of which rank 1 waits for its loader.
"""

from pathlib import Path

from forkpoint.evidence.stacks.read import read_live_stacks
from forkpoint.evidence.stacks.threads import RankStacks, Thread

SAMPLES = Path(__file__).parent / "samples"


def recorded(name: str) -> str:
    return (SAMPLES / name).read_text()


def read_one(name: str, rank: int | None = 3) -> RankStacks:
    (stacks,) = read_live_stacks(recorded(name), name, rank)
    return stacks


def names(thread: Thread | None) -> list[str]:
    assert thread is not None
    return [frame.name for frame in thread.stack]
