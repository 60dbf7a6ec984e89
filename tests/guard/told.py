"""Beats written down by hand."""

from forkpoint.guard.beat import Beat, GroupBeat, RankState


def beat(
    rank: int,
    seq: int = 5,
    *,
    done: int | None = None,
    tail: dict[int, int] | None = None,
    group: str = "0#a",
    size: int = 4,
    still_s: float = 0.0,
    state: RankState = RankState.RUNNING,
    says: str = "",
    neighbour: tuple[int, RankState] | None = None,
    steps: dict[int, dict[str, int]] | None = None,
    timeout_s: float = 600.0,
) -> Beat:
    """A rank that issued `seq` calls in one group, of which `done` (all, if not said) are done."""
    calls = {s: 100 + s for s in range(1, seq + 1)} if tail is None else tail
    completed = seq if done is None else done
    return Beat(
        rank=rank,
        number=1,
        state=state,
        says=says,
        still_s=still_s,
        calling="",
        groups={group: GroupBeat(size, seq, completed, seq, timeout_s, calls)},
        steps=steps or {},
        neighbour=neighbour[0] if neighbour else None,
        neighbour_state=neighbour[1] if neighbour else RankState.RUNNING,
    )
