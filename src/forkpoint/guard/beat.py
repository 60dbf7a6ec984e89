"""What one rank tells the others at every look, and how it travels."""

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

_MAX_BYTES: Final = 1 << 20


class RankState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    """Its program ended, or took its process groups down."""
    RAISED = "raised"
    """Its program ends with an exception."""
    STOPPED = "stopped"
    """Its process is there and does not run (SIGSTOP). Told by a rank of the same host."""
    GONE = "gone"
    """Its process is no longer there. Told by a rank of the same host."""


@dataclass(frozen=True, slots=True)
class GroupBeat:
    """Of one group. Its key is its name and its members, for the same name may mean other members elsewhere."""

    size: int
    enqueued: int
    completed: int
    last_seq: int
    """The newest recorded call: above `enqueued` while its rank is still inside the enqueue."""
    timeout_s: float
    tail: dict[int, int] = field(default_factory=dict[int, int])
    blocks: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def waits_at(self) -> int | None:
        """The call that is not done; None without one."""
        newest = max(self.enqueued, self.last_seq)
        return self.completed + 1 if newest > max(self.completed, 0) else None


@dataclass(frozen=True, slots=True)
class Beat:
    rank: int
    number: int
    """One higher each time: a rank whose number stands still tells nothing."""
    state: RankState
    says: str
    """The exception it ends with."""
    still_s: float
    """How long nothing has moved here, by this rank's own clock."""
    calling: str
    """The torch.distributed call its main thread stands in."""
    groups: dict[str, GroupBeat]
    steps: dict[int, dict[str, int]]
    """How many calls each group had at the end of a step, for steps told with `guard.step`."""
    reads: int = 0
    """How often calls have been read: only then are `tail` and `blocks` told anew, apart from the beat."""
    neighbour: int | None = None
    """The next rank of the same host, whose process this one looks at."""
    neighbour_state: RankState = RankState.RUNNING

    @property
    def is_waiting(self) -> bool:
        return self.state is RankState.RUNNING and (
            bool(self.calling) or any(g.waits_at is not None for g in self.groups.values())
        )


def with_neighbour(beat: Beat, rank: int, state: RankState) -> Beat:
    return replace(beat, neighbour=rank, neighbour_state=state)


def without_calls(beat: Beat) -> Beat:
    return replace(beat, groups={key: replace(g, tail={}, blocks={}) for key, g in beat.groups.items()}, steps={})


def with_calls(beat: Beat, told: Beat) -> Beat:
    """A beat and the calls that its rank told last."""
    groups = {
        key: replace(g, tail=told.groups[key].tail, blocks=told.groups[key].blocks) if key in told.groups else g
        for key, g in beat.groups.items()
    }
    return replace(beat, groups=groups, steps=told.steps)


def encode(beat: Beat) -> bytes:
    return json.dumps(asdict(beat), separators=(",", ":")).encode()


def decode(data: bytes) -> Beat | None:
    """None: not a beat. Anyone who reaches the store can write there."""
    if len(data) > _MAX_BYTES:
        return None
    try:
        raw: dict[str, Any] = json.loads(data)
        groups = {str(key): _group(value) for key, value in raw.pop("groups").items()}
        steps = {int(step): {str(k): int(v) for k, v in counts.items()} for step, counts in raw.pop("steps").items()}
        state, seen = RankState(raw.pop("state")), RankState(raw.pop("neighbour_state"))
        return Beat(groups=groups, steps=steps, state=state, neighbour_state=seen, **raw)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _group(raw: dict[str, Any]) -> GroupBeat:
    tail, blocks = ({int(k): int(v) for k, v in raw.pop(name).items()} for name in ("tail", "blocks"))
    return GroupBeat(tail=tail, blocks=blocks, **raw)
