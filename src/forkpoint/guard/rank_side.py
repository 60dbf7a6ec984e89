"""One rank's part: look at the recorder, report to the others, answer when asked."""

import math
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from forkpoint.guard.calls import Digest, RecentReader
from forkpoint.guard.messages import Beat, Calls, GroupBeat, RankAnswer, RankHealth
from forkpoint.guard.recorder import (
    GroupCounters,
    TorchRecorder,
    communication_call,
    dump_stacks,
    find_groups,
    give_back,
)
from forkpoint.live.stall import Stillness
from forkpoint.model.world import ProcessGroup
from forkpoint.report.escape import valid_text

_SHARE: Final = 0.005
"""Share of time spent reading calls, with the GIL held: if a read takes 5 ms, one per second; 25 ms (a full ring buffer),
one every 4 s."""
_EARLY_S: Final = 0.05
"""Looks start a little before or after their scheduled time."""
_QUIET_LOOKS: Final = 2
"""After this many looks without movement calls are read once more: now it matters which call this rank is in."""
_KEPT_STEPS: Final = 64
"""Ranks report at different moments, and must have steps in common."""


class RankSide:
    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.digest = Digest()
        self._recorder = TorchRecorder()
        self._reader = RecentReader()
        self._counters = Stillness[dict[int, GroupCounters]]({}, time.monotonic())
        self._number = 0
        self.reads = 0
        """How often calls were read or a step ended: changes when there is something new to send."""
        self._quiet_looks = 0
        self._next_read = 0.0
        self._sizes: dict[str, int] = {}
        self._keys: dict[str, str] = {}
        self._steps: OrderedDict[int, dict[str, int]] = OrderedDict()

    def poll(self) -> float:
        """Reads the counters, and the calls when due. Returns for how long nothing has moved. Usually microseconds."""
        now = time.monotonic()
        still_s = self._counters.see(self._recorder.counters(), now)
        self._quiet_looks = self._quiet_looks + 1 if still_s else 0
        if self._quiet_looks == _QUIET_LOOKS or (self._quiet_looks == 0 and now >= self._next_read):
            self._read_calls(now)
        return still_s

    def beat(self) -> Beat:
        """The message for the other ranks."""
        self._number += 1
        error = _last_error()
        return Beat(
            rank=self.rank,
            number=self._number,
            state=RankHealth.RAISED if error else RankHealth.RUNNING,
            says=error,
            still_s=round(self._counters.seconds(time.monotonic()), 3),
            calling=communication_call(),
            groups=self._group_beats(),
            reads=self.reads,
        )

    def calls(self) -> Calls:
        named = [(self._keys.get(name, name), group) for name, group in self.digest.groups.items()]
        return Calls(
            rank=self.rank,
            reads=self.reads,
            tails={key: dict(group.tail) for key, group in named},
            blocks={key: dict(group.blocks) for key, group in named},
            steps={step: {self._keys.get(g, g): n for g, n in c.items()} for step, c in list(self._steps.items())},
        )

    def _read_calls(self, now: float) -> None:
        began = time.thread_time()
        self.reads += 1
        before = self.digest.seen
        self.digest.add(self._reader.read(self._recorder.calls(), before))
        give_back()
        groups = find_groups()
        self._sizes = {g.name: len(g.ranks) for g in groups}
        self._keys = {g.name: _key(g) for g in groups}
        self._next_read = now + _until_common_moment((time.thread_time() - began) / _SHARE)

    def _group_beats(self) -> dict[str, GroupBeat]:
        by_name = {
            self.digest.names[pg_id]: c for pg_id, c in self._counters.value.items() if pg_id in self.digest.names
        }
        told: dict[str, GroupBeat] = {}
        for name, group in self.digest.groups.items():
            counters = by_name.get(name, GroupCounters(group.last_seq, group.last_seq))
            told[self._keys.get(name, name)] = GroupBeat(
                size=self._sizes.get(name, self.world_size),
                completed=counters.completed,
                last_seq=max(group.last_seq, counters.enqueued),
                timeout_s=group.timeout_s,
            )
        return told

    def end_step(self, step: int) -> None:
        """Called by the training thread: how many calls each group has had by now."""
        self.reads += 1
        self._steps[step] = {self.digest.names.get(i, str(i)): c.enqueued for i, c in self._recorder.counters().items()}
        while len(self._steps) > _KEPT_STEPS:
            self._steps.popitem(last=False)

    def last_beat(self) -> Beat:
        """How its program ends."""
        self.poll()
        last = self.beat()
        return last if last.state is RankHealth.RAISED else replace(last, state=RankHealth.FINISHED, calling="")

    def answer(self) -> RankAnswer:
        return RankAnswer(
            rank=self.rank,
            world_size=self.world_size,
            groups=tuple(find_groups()),
            stacks=valid_text(dump_stacks(threading.get_ident())),
            steps=dict(self._steps),
            dump=self._recorder.dump(),
        )


def _until_common_moment(apart_s: float) -> float:
    """All ranks read at the same wall-clock times, so that the job is delayed once. If they read one after the other, it
    would be delayed once per rank.
    """
    period_s = 2.0 ** round(math.log2(max(apart_s, _EARLY_S)))
    return period_s - time.time() % period_s - _EARLY_S


def _last_error() -> str:
    """The exception with which the program ends; "" while it runs. The interpreter keeps it when the main thread ends."""
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or threading.main_thread().is_alive():
        return ""
    return valid_text("".join(traceback.format_exception(error))[-4000:])


def leave_files(answer: RankAnswer, folder: Path) -> None:
    """Under the names that the engine and torch's own tools expect."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (
        (f"trace_rank_{answer.rank}", answer.dump),
        (f"stacks_rank_{answer.rank}.txt", answer.stacks.encode()),
    ):
        if not (folder / name).exists():  # rank 0 may have written it to the same disk already
            partial = folder / f".{name}.{os.getpid()}"
            partial.write_bytes(data)
            partial.replace(folder / name)


def _key(group: ProcessGroup) -> str:
    members = blake2b(repr(group.ranks).encode(), digest_size=4).hexdigest()
    return f"{group.name}#{members}"
