"""What ranks tell, written down by hand."""

from collections.abc import Iterable, Sequence

from forkpoint.guard.messages import Beat, Calls, GroupBeat, RankHealth
from forkpoint.guard.summary import Summary, summarise

Told = tuple[Beat, Calls]


def told(
    rank: int,
    seq: int = 5,
    *,
    done: int | None = None,
    tail: dict[int, int] | None = None,
    group: str = "0#a",
    size: int = 4,
    still_s: float = 0.0,
    state: RankHealth = RankHealth.RUNNING,
    says: str = "",
    neighbour: tuple[int, RankHealth] | None = None,
    steps: dict[int, dict[str, int]] | None = None,
    timeout_s: float = 600.0,
) -> Told:
    """A rank that issued `seq` calls in one group, of which `done` (all, if not said) are done."""
    calls = {s: 100 + s for s in range(1, seq + 1)} if tail is None else tail
    beat = Beat(
        rank=rank,
        number=1,
        state=state,
        says=says,
        still_s=still_s,
        calling="",
        groups={group: GroupBeat(size, seq if done is None else done, seq, timeout_s)},
        reads=1,
        neighbour=neighbour[0] if neighbour else None,
        neighbour_state=neighbour[1] if neighbour else RankHealth.RUNNING,
    )
    return beat, Calls(rank, 1, {group: calls}, {}, steps or {})


def summary_of(ranks: Sequence[Told], silent: Iterable[int] = ()) -> Summary:
    return summarise([beat for beat, _ in ranks], [calls for _, calls in ranks], silent)
