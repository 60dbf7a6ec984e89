"""Beats of many ranks -> one summary, in a tree: each leader reads at most FAN_IN keys, whatever the size of the job.

Level 0 are the ranks. The lowest rank of every FAN_IN leads them; of the leaders, the lowest of every FAN_IN leads those;
rank 0 leads all. In a job of up to FAN_IN ranks rank 0 alone reads.
"""

import time
from typing import Final

from forkpoint.guard.beat import Beat, Calls, RankHealth
from forkpoint.guard.meeting import Meeting
from forkpoint.guard.summary import FAN_IN, Summary, merge, summarise, without_closed_groups
from forkpoint.guard.wire import decode, encode
from forkpoint.live.stall import Stillness

SILENT_S: Final = 5.0
"""A guard reports every second or two; a starved one (its rank holds the GIL, the host swaps) may miss a few."""
_MISSED: Final = 10
"""In jobs of thousands of ranks guards look less often: so many looks one may miss before it is called silent."""


def levels_led(rank: int, world_size: int) -> int:
    """How many levels this rank leads: 0 for most, all of them for rank 0."""
    levels, span = 0, FAN_IN
    while rank % span == 0 and (levels == 0 or span // FAN_IN < world_size):
        levels += 1
        span *= FAN_IN
    return levels


class Leader:
    def __init__(self, rank: int, world_size: int, meeting: Meeting, every_s: float) -> None:
        self._silent_s = max(SILENT_S, _MISSED * every_s)
        self.levels = levels_led(rank, world_size)
        self._rank = rank
        self._world_size = world_size
        self._meeting = meeting
        self._heard: dict[int, Stillness[int]] = {}
        self._calls: dict[int, Calls] = {}
        """What each rank told last of its calls."""

    def gather(self) -> Summary:
        """Of all ranks below this one. Tells it to the leader above, except where there is none."""
        members = range(self._rank, min(self._rank + FAN_IN, self._world_size))
        told = [decode(data, Beat) for data in self._meeting.hear([f"beat/{rank}" for rank in members])]
        heard = [beat for beat in told if beat is not None]
        self._hear_calls(heard)
        summary = summarise(heard, list(self._calls.values()), [b.rank for b in heard if self._is_silent(b)])
        span = FAN_IN
        for level in range(1, self.levels):
            self._meeting.tell(f"summary/{level}/{self._rank}", encode(without_closed_groups(summary)))
            leaders = range(self._rank, min(self._rank + span * FAN_IN, self._world_size), span)
            data = self._meeting.hear([f"summary/{level}/{rank}" for rank in leaders])
            parts = [decode(part, Summary) for part in data]
            summary = merge([part for part in parts if part is not None])
            span *= FAN_IN
        if self._rank:
            self._meeting.tell(f"summary/{self.levels}/{self._rank}", encode(without_closed_groups(summary)))
        return summary

    def _hear_calls(self, heard: list[Beat]) -> None:
        """Only what is new is read again."""
        new = [b.rank for b in heard if b.rank not in self._calls or self._calls[b.rank].reads != b.reads]
        for data in self._meeting.hear([f"calls/{rank}" for rank in new]) if new else ():
            calls = decode(data, Calls)
            if calls is not None:
                self._calls[calls.rank] = calls

    def _is_silent(self, beat: Beat) -> bool:
        now = time.monotonic()
        known = self._heard.setdefault(beat.rank, Stillness(beat.number, now))
        return known.see(beat.number, now) > self._silent_s and beat.state is RankHealth.RUNNING
