"""Small jobs in which ranks come late: for tests of who arrives last."""

from collections.abc import Callable
from dataclasses import replace

from forkpoint.model.capture import Capture
from forkpoint.model.world import RankPlace
from small_jobs import SmallJob

MS = 1_000_000
HOUR = 3600 * 1000 * MS

Lateness = Callable[[int, int], int]
"""(rank, slot) -> nanoseconds."""


def job_with(late: Lateness, world: int = 4, slots: int = 40, spacing: int = 100 * MS) -> SmallJob:
    job = SmallJob(world)
    for _ in range(slots):
        job.op()
    for rank, entries in job.entries.items():
        for slot, entry in enumerate(entries):
            entry["time_created_ns"] = entries[0]["time_created_ns"] + slot * spacing
        for slot, entry in enumerate(entries):
            entry["time_created_ns"] += late(rank, slot)
            entry["time_discovered_completed_ns"] = entry["time_created_ns"] + 50 * MS
    return job


def placed(capture: Capture, hosts: int = 1) -> Capture:
    world = len(capture.traces)
    places = tuple(RankPlace(rank, f"node{rank * hosts // world}", None, "", "log", rank) for rank in range(world))
    return replace(capture, places=places)


def late_for_good() -> Capture:
    """Rank 2 is last all the time, and then by more than the timeout."""
    job = job_with(lambda rank, _: 20 * MS * (rank == 2))
    job.op(done=False)
    for rank, entries in job.entries.items():
        entries[-1]["time_created_ns"] = entries[-2]["time_created_ns"] + 100 * MS + 25_000 * MS * (rank == 2)
    return placed(job.capture())
