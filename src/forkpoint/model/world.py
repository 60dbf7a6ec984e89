"""The ranks of a job and the groups in which they communicate."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ProcessGroup:
    """Ranks that communicate together. Two groups may share a name: the members tell them apart."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    """Global ranks in group-rank order."""
    declared: bool = True
    """False: no dump states the members; these are the ranks seen using the group."""

    def __hash__(self) -> int:
        """Groups have up to 100,000 members: a few of them tell as much."""
        return hash((self.name, self.desc, len(self.ranks), self.ranks[:2]))

    def __str__(self) -> str:
        return self.desc if self.desc and self.desc != "undefined" else f"group {self.name}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank ran."""

    rank: int
    host: str
    gpu: int | None
    """The number NVML gives it, in the container where the rank runs; None where NCCL is too old to say."""
    bus_id: str
    file: str
    line: int
    pid: int | None = None
    """Of its process, as it is numbered where the rank runs; None where files disagree."""
