"""Replay of the recorded end of a job: the check that a repair explains what is seen."""

from forkpoint.replay.job import Job, Slot
from forkpoint.replay.run import Repair, RepairKind, Replay, replay

__all__ = ["Job", "Repair", "RepairKind", "Replay", "Slot", "replay"]
