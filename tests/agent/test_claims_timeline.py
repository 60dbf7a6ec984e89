"""`issued` and `missing`: what each rank of every recorded case issued, and the same with one thing changed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from msgspec import structs

from agent.claim_cases import all_recorded, all_with_messages, recorded
from cases import load_cases
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.claims import Issued, Missing
from forkpoint.agent.claims.held import other_call_there, same_op
from forkpoint.brief.case import Case
from forkpoint.model.incident import Incident
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Track
from looping import for_each

NUMBERS = [case.number for case in load_cases()]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One op as the dumps have it, found without the code that is under test."""

    group: GroupTimeline
    rank: int
    seq: int
    op: str


def some_of(track: Track, case: Case) -> dict[int, str]:
    """The first, the middle and the last op of a track, by seq."""
    tables = case.incident.timeline.tables
    held = {
        int(seq): tables.signatures[int(token)][0].op
        for key in track.blocks
        for seq, token in zip(tables.blocks[key].seqs, tables.blocks[key].match, strict=True)
    }
    kept = sorted(held)
    return {seq: held[seq] for seq in {kept[0], kept[len(kept) // 2], kept[-1]}}


def collectives(case: Case) -> Iterator[Recorded]:
    for group in case.incident.timeline.groups:
        for rank in group.group.ranks:
            track = group.track(rank)
            if track is not None:
                yield from (Recorded(group, rank, seq, op) for seq, op in some_of(track, case).items())


def is_one_of_its_name(group: GroupTimeline, rank: int, case: Case) -> bool:
    """Groups of one name that hold the rank cannot be told apart by it."""
    held = (g for g in case.incident.timeline.groups if rank in (*g.group.ranks, *g.maybe))
    return sum(g.group.name == group.group.name for g in held) == 1


def issued(rank: int, group: str, seq: int, op: str) -> Issued:
    return Issued(kind="issued", evidence=[], ranks=[rank], group=group, seq=seq, op=op)


def missing(ranks: list[int], group: str, seq: int) -> Missing:
    return Missing(kind="missing", evidence=[], ranks=ranks, group=group, seq=seq)


@for_each("number", NUMBERS, one_in=10)
def test_what_a_dump_holds_is_supported_and_nothing_that_differs_from_it(number: str) -> None:
    case = recorded(number)
    for one in collectives(case):
        name = one.group.group.name
        if not is_one_of_its_name(one.group, one.rank, case):
            continue
        other = "broadcast" if not same_op(one.op, "broadcast") else "reduce"

        assert issued(one.rank, name, one.seq, one.op).check(case).status is ClaimStatus.SUPPORTED
        assert issued(one.rank, name, one.seq, other).check(case).status is not ClaimStatus.SUPPORTED
        alike = other_call_there(one.rank, one.group, one.seq, case) is None
        status = missing([one.rank], name, one.seq).check(case).status
        assert status is (ClaimStatus.CONTRADICTED if alike else ClaimStatus.UNVERIFIABLE)
        for wrong in (
            issued(one.rank, name, one.seq + 1_000_000, one.op),
            issued(one.rank, name, -one.seq - 1, one.op),
            issued(one.rank + 1_000_000, name, one.seq, one.op),
            issued(one.rank, f"{name}x", one.seq, one.op),
        ):
            assert wrong.check(case).status is not ClaimStatus.SUPPORTED


@for_each("number", NUMBERS, one_in=10)
def test_who_is_behind_a_group_is_missing_there_and_nobody_else_is(number: str) -> None:
    case = recorded(number)
    for group in case.incident.timeline.groups:
        lasts = {r: t.last_seq if (t := group.track(r)) else 0 for r in group.traces}
        top = max(lasts.values(), default=0)
        for rank in group.group.ranks if top else ():
            if not is_one_of_its_name(group, rank, case):
                continue
            status = missing([rank], group.group.name, top).check(case).status
            if rank not in group.traces or rank in group.blind_after or group.is_evicted(rank):
                assert status is not ClaimStatus.SUPPORTED
            else:
                alike = other_call_there(rank, group, top, case) is None
                reached = ClaimStatus.CONTRADICTED if alike else ClaimStatus.UNVERIFIABLE
                assert status is (ClaimStatus.SUPPORTED if lasts[rank] < top else reached)
            assert missing([rank], group.group.name, top + 1).check(case).status is not ClaimStatus.SUPPORTED


def test_messages_are_supported_by_the_channels_that_hold_them() -> None:
    checked = 0
    for _, case in all_with_messages():
        lasts: dict[tuple[str, int, str], int] = {}
        for channel in case.incident.timeline.channels:
            for rank, op in ((channel.source, "send"), (channel.destination, "recv")):
                if (track := channel.end(rank)) is not None:
                    end = channel.group.name, rank, op
                    lasts[end] = max(track.last_seq, lasts.get(end, track.last_seq))
        for channel in case.incident.timeline.channels:
            ends = ((channel.source, channel.sent, "send"), (channel.destination, channel.received, "recv"))
            for rank, track, op in ends:
                if track is None:
                    continue
                name, seq = channel.group.name, track.last_seq
                after = lasts[name, rank, op] + 1

                assert issued(rank, name, seq, op).check(case).status is ClaimStatus.SUPPORTED
                assert issued(rank, name, seq, f"dist.i{op}").check(case).status is ClaimStatus.SUPPORTED
                assert issued(rank, name, after, op).check(case).status is not ClaimStatus.SUPPORTED
                checked += 1
    assert checked > 20


def test_the_claims_of_all_cases_are_not_about_nothing() -> None:
    found = (one for _, case in all_recorded() for one in collectives(case))

    assert len(list(islice(found, 1001))) > 1000


@for_each("op", ["all_reduce", "allreduce", "ALLREDUCE", "nccl:all_reduce", "dist.all_reduce"])
def test_an_op_may_be_written_as_people_write_it(op: str) -> None:
    assert issued(0, "default_pg", 16, op).check(recorded("0001")).status is ClaimStatus.SUPPORTED


@for_each(
    ("one", "two", "same"),
    [
        ("_all_gather_base", "all_gather_into_tensor", True),
        ("_ALLGATHER_BASE", "all_gather_into_tensor", True),
        ("reduce_scatter_tensor", "_reduce_scatter_base", True),
        ("barrier", "nccl:all_reduce_barrier", True),
        ("all_to_all_single", "ALLTOALL_BASE", True),
        ("all_gather", "_all_gather_base", False),
        ("all_reduce", "reduce", False),
        ("reduce_scatter", "reduce", False),
        ("send", "recv", False),
        ("", "", False),
        ("all_reduce; rm", "all_reduce", False),
    ],
)
def test_ops_are_the_same_only_if_one_call_makes_both(one: str, two: str, *, same: bool) -> None:
    assert same_op(one, two) is same


def test_a_group_may_be_named_by_its_number_or_its_description() -> None:
    case = recorded("0001")

    assert issued(0, "0", 16, "all_reduce").check(case).status is ClaimStatus.SUPPORTED
    assert issued(0, "default_pg", 16, "all_reduce").check(case).status is ClaimStatus.SUPPORTED
    assert "there is default_pg of ranks 0-3" in issued(0, "tp", 16, "all_reduce").check(case).why


def test_a_rank_outside_the_group_contradicts() -> None:
    check = issued(7, "default_pg", 16, "all_reduce").check(recorded("0001"))

    assert check.status is ClaimStatus.CONTRADICTED
    assert "rank 7 is not in `default_pg`" in check.why


def test_one_rank_that_did_something_else_contradicts_a_claim_about_several() -> None:
    case = recorded("0001")
    claim = Issued(kind="issued", evidence=[], ranks=[0, 1, 9], group="0", seq=16, op="all_reduce")

    assert claim.check(case).status is ClaimStatus.CONTRADICTED
    assert claim.model_copy(update={"ranks": [0, 1, 2, 3]}).check(case).status is ClaimStatus.SUPPORTED


def test_no_rank_is_no_claim() -> None:
    claim = Missing(kind="missing", evidence=[], ranks=[], group="0", seq=16)

    assert claim.check(recorded("0001")).status is ClaimStatus.UNVERIFIABLE


def test_groups_of_one_name_are_told_apart_by_their_members() -> None:
    case, group = next(
        (case, g)
        for _, case in all_recorded()
        for g in case.incident.timeline.groups
        if sum(o.group.desc == g.group.desc for o in case.incident.timeline.groups) > 1 and g.track(g.group.ranks[0])
    )
    rank, desc = group.group.ranks[0], group.group.desc
    track = group.track(rank)
    assert track is not None
    other = next(o for o in case.incident.timeline.groups if o.group.desc == desc and rank not in o.group.ranks)
    op = track.last.signatures[0].op

    assert issued(rank, desc, track.last_seq, op).check(case).status is ClaimStatus.SUPPORTED
    both = Issued(kind="issued", evidence=[], ranks=[rank, other.group.ranks[0]], group=desc, seq=track.last_seq, op=op)
    assert both.check(case).status is ClaimStatus.UNVERIFIABLE


def test_a_rank_without_a_dump_is_neither_missing_nor_there() -> None:
    case = recorded("0001")
    timeline = case.incident.timeline
    (group,) = timeline.groups
    without = structs.replace(group, traces=group.traces.among([r for r in group.traces if r != 2]))
    blind = Incident.of(case.incident.capture, structs.replace(timeline, groups=(without,)), case.incident.divergences)
    less = replace(case, incident=blind)

    assert missing([2], "0", 16).check(less).status is ClaimStatus.UNVERIFIABLE
    assert issued(2, "0", 16, "all_reduce").check(less).status is ClaimStatus.UNVERIFIABLE
    assert missing([2], "0", 17).check(less).status is ClaimStatus.UNVERIFIABLE


def test_a_seq_that_nobody_has_come_to_misses_nobody() -> None:
    check = missing([0], "0", 1000).check(recorded("0001"))

    assert check.status is ClaimStatus.UNVERIFIABLE
    assert "so no rank is missing there" in check.why


def test_sentences_say_who_and_where() -> None:
    told = issued(0, "default_pg", 16, "all_reduce").sentence()

    assert told == "rank 0 issued `all_reduce` at seq 16 of `default_pg`"
    assert missing([1, 2, 3], "0", 9).sentence() == "ranks 1-3 have not reached seq 9 of `0`"


def test_a_message_may_be_named_with_both_its_ends() -> None:
    case, channel, track = next(
        (case, c, c.sent)
        for _, case in all_recorded()
        for c in case.incident.timeline.channels
        if c.sent is not None and c.group.declared
    )
    members, name = channel.group.ranks, channel.group.name
    source, destination = members.index(channel.source), members.index(channel.destination)
    there = issued(channel.source, name, track.last_seq, f"send {source}->{destination}")
    back = issued(channel.source, name, track.last_seq, f"send {destination}->{source}")

    assert there.check(case).status is ClaimStatus.SUPPORTED
    assert back.check(case).status is not ClaimStatus.SUPPORTED
    assert issued(channel.source, name, track.last_seq, "send 0->999").check(case).status is ClaimStatus.CONTRADICTED


def test_an_end_of_a_channel_that_never_sent_is_missing_there() -> None:
    """Case 0077: message 13 of 2->3 is never sent, and rank 3 waits for it."""
    case = recorded("0077")

    assert missing([2], "default_pg", 13).check(case).status is ClaimStatus.SUPPORTED
    assert missing([3], "default_pg", 13).check(case).status is not ClaimStatus.SUPPORTED
