"""Every rank that is seen waits at the same line of the program: what that may mean."""

from collections.abc import Iterator

from forkpoint.judge.facts.stacks import Standing, is_making_group
from forkpoint.judge.facts.stragglers import find_late_at_one_line
from forkpoint.model.frames import user_place
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Cause, Evidence, Hypothesis
from forkpoint.model.world import name_ranks


def read_one_line(
    standings: dict[int, Standing], cited: tuple[Evidence, ...], incident: Incident
) -> Iterator[Hypothesis]:
    first = next(iter(standings.values()))
    place = user_place(first.stack) or "one call"
    if is_making_group(first.stack):
        yield Hypothesis(
            Cause.DIVERGENT_PATH,
            (),
            f"every rank that is seen creates a group at {place}: not the same one, or not in the same order",
            "print rank and members right before each new_group, on every rank",
            alternatives=(Cause.NEVER_JOINED, Cause.ORDER_INVERSION),
            supports=cited,
            asks="printing rank and members before each new_group",
        )
        return
    if first.called in ("send", "recv"):
        yield Hypothesis(
            Cause.ORDER_INVERSION,
            (),
            f"every rank that is seen is in {first.called} at {place}: all begin with the same half, and nobody with the other",
            "the stacks of all ranks: is there one in the other half? Else use batch_isend_irecv",
            supports=cited,
            asks="the stacks of all ranks",
        )
        return
    wait = f"every rank that is seen waits at {place}"
    yield from _came_late(standings, place, incident)
    yield Hypothesis(
        Cause.METADATA_MISMATCH,
        (),
        f"{wait}, with arguments, roots or splits that differ, or in different rounds of its loop",
        "the dumps of all ranks, recorded with TORCH_FR_BUFFER_SIZE=2000: which number and which sizes has each?",
        alternatives=(Cause.DIVERGENT_PATH,),
        supports=cited,
        asks="the dumps of all ranks",
    )
    yield Hypothesis(
        Cause.TRANSPORT,
        (),
        f"{wait}, and the network or a GPU does not finish it",
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET; nvidia-smi -q and dmesg on each node",
        alternatives=(Cause.GPU_STALL,),
        supports=cited,
        asks="NCCL_DEBUG=INFO and dmesg of each node",
    )
    if incident.timeline.unseen:
        yield Hypothesis(
            Cause.HOST_STALL,
            (),
            f"{wait}; a rank that is not seen did not come",
            "how many ranks has the job, and where do the others stand?",
            alternatives=(Cause.RANK_LOST,),
            supports=cited,
            asks="where the other ranks stand",
        )


def _came_late(standings: dict[int, Standing], place: str, incident: Incident) -> Iterator[Hypothesis]:
    late = find_late_at_one_line(incident)
    who, gone = name_ranks(late), "when the others had timed out there and gone"
    if late:
        yield Hypothesis(
            Cause.STRAGGLER,
            late,
            f"{who} came to {place} {gone}",
            f"the times in the log of {who}: how long did the work before {place} take?",
            alternatives=(Cause.HOST_STALL,),
            supports=tuple(standings[rank].evidence for rank in (*late[:2], *standings))[:3],
            plain=f"{plain_ranks(late)} came {gone}",
            asks=f"the times in the log of {who}",
        )
