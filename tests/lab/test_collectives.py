"""What `forkpoint lab collectives` plans and judges, without a rank."""

from itertools import combinations

import numpy as np
import pytest

from forkpoint.errors import UsageError
from forkpoint.lab.collectives.links import (
    Again,
    Blame,
    Measure,
    Pair,
    PairTimes,
    Part,
    SlowPair,
    blame,
    choose_again,
    find_slow,
    rounds_of_pairs,
)
from forkpoint.lab.collectives.plan import (
    KIND_BY_NAME,
    KINDS,
    CollectivesPlan,
    Injected,
    mesh_partitions,
    parse_injected,
)
from forkpoint.lab.jobs.collectives import calls
from forkpoint.lab.jobs.collectives.worker import read_choices
from looping import for_each

US = 1000


# ------------------------------------------------------------------------------------------------------------- patterns


@for_each("members", [2, 3, 8, 81, 1000])
def test_every_sum_and_product_is_exact_even_in_bfloat16(members: int) -> None:
    sums = calls.total(members, 4000, seed=1)
    products = calls.product(members, 4000, seed=1)

    assert 0 < sums.max() < 256
    assert 1 < products.max() < 256


@for_each("members", [2, 8, 200])
def test_every_member_matters_to_the_sum(members: int) -> None:
    for member in (0, members - 1):
        assert calls.addend(member, members, 4000, seed=0).any()


def test_what_no_rank_wrote_is_never_right() -> None:
    assert calls.moved(5, 4000, seed=1).max() < calls.POISON
    assert calls.total(80, 4000, seed=1).max() < calls.POISON


def test_a_part_that_lands_in_a_wrong_place_or_from_a_wrong_rank_is_wrong_there() -> None:
    chunk = calls.moved(3, 1024, seed=0)

    for power in range(10):
        assert (chunk[: 1 << power] != calls.moved(3, 1 << power, seed=0, start=1024)).all()
    assert (chunk != calls.moved(4, 1024, seed=0)).all()
    assert (chunk != calls.moved(3, 1024, seed=1)).all()
    assert (chunk != calls.moved(3, 1024, seed=0, part=1)).all()


def test_a_shifted_row_of_booleans_is_seen() -> None:
    bits = calls.as_bits(calls.moved(0, 1024, seed=0))

    assert all((bits[shift:] != bits[:-shift]).any() for shift in (1, 2, 8, 256))


def test_uneven_parts_are_uneven_and_are_what_the_other_end_expects() -> None:
    sends = np.array([[calls.uneven_split(one, other, 4, 100) for other in range(4)] for one in range(4)])

    assert len({*sends.flatten()}) > 1
    assert sends.min() > 0


# ----------------------------------------------------------------------------------------------------------------- plan


def test_bus_bandwidth_has_the_factors_of_nccl_tests() -> None:
    factors = {kind.name: kind.bus_factor(8) for kind in KINDS if kind.bus}

    assert factors["all_reduce_sum"] == 1.75
    assert factors["all_gather_into_tensor"] == factors["reduce_scatter"] == factors["all_to_all_single"] == 0.875
    assert factors["broadcast"] == factors["reduce_sum"] == factors["send_recv"] == 1.0


def test_a_size_is_that_of_all_parts_together() -> None:
    [test] = [
        t
        for t in CollectivesPlan(sizes=(1 << 20,), kinds=("all_gather",), groups=("world",)).tests(8)
        if t.dtype == "int64"
    ]

    assert test.elements(8) == (1 << 20) // 8 // 8
    assert test.bytes_of(8) == 1 << 20


def test_a_mesh_gives_each_axis_its_groups() -> None:
    found = {part.name: part.groups for part in mesh_partitions((("dp", 2), ("pp", 1), ("tp", 4)), 8)}

    assert found == {"dp": ((0, 4), (1, 5), (2, 6), (3, 7)), "tp": ((0, 1, 2, 3), (4, 5, 6, 7))}


def test_a_mesh_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match="has 6 ranks, the job 8"):
        list(mesh_partitions((("dp", 2), ("tp", 3)), 8))


def test_sums_of_booleans_are_not_tried() -> None:
    tried = {(test.kind.name, test.dtype) for test in CollectivesPlan().tests(4)}

    assert ("all_gather", "bool") in tried
    assert ("all_reduce_sum", "bool") not in tried
    assert {kind for kind, _ in tried} == set(KIND_BY_NAME)


@for_each("world", [2, 3, 7, 8])
def test_rounds_have_every_pair_once_and_no_rank_twice_at_a_time(world: int) -> None:
    rounds = rounds_of_pairs(world)

    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(world), 2))
    assert all(len({rank for pair in pairs for rank in pair}) == 2 * len(pairs) for pairs in rounds)


def test_what_is_planted_is_read() -> None:
    assert parse_injected("flip:3:all_gather") == Injected("flip", 3, "all_gather")
    assert parse_injected("delay:2:5:5") == Injected("delay", 2, peer=5, ms=5.0)
    for wrong in ("flip:3", "flip:3:all_gathered", "melt:3", "delay:a:5:5"):
        with pytest.raises(UsageError, match="is not a fault"):
            parse_injected(wrong)


# ---------------------------------------------------------------------------------------------------------------- links


def timed(
    world: int, slow: dict[Pair, int], usual: int = 400 * US, small: dict[Pair, int] | None = None
) -> list[PairTimes]:
    found = []
    for pair in combinations(range(world), 2):
        few, many = (small or {}).get(pair, 100 * US), slow.get(pair, usual)
        found.append(PairTimes(pair, (few, few + 5 * US), (many + 90 * US, many)))
    return found


def judged(times: list[PairTimes], hosts: dict[int, str], alone: list[PairTimes] | None = None) -> tuple[Blame, ...]:
    again = choose_again(times, hosts)
    chosen = {*again.suspicious, *again.controls}
    repeated = [one for one in (alone or times) if one.pair in chosen]
    pairs = [one.pair for one in times if one.pair not in again.left_out]
    return blame(find_slow(again, repeated, hosts), pairs, hosts)


def one_host(world: int) -> dict[int, str]:
    return dict.fromkeys(range(world), "node0")


def test_one_slow_link_is_named_and_no_other() -> None:
    [found] = judged(timed(8, {(2, 5): 4000 * US}), one_host(8))

    assert (found.part, found.name, found.ranks) == (Part.LINK, "2-5", (2, 5))
    assert found.pairs == (SlowPair((2, 5), Measure.LARGE, 4000 * US, 400 * US),)


def test_a_rank_that_is_slow_with_everybody_is_named_and_not_its_peers() -> None:
    pairs = {(min(3, other), max(3, other)): 4000 * US for other in range(8) if other != 3}

    [found] = judged(timed(8, pairs), one_host(8))

    assert (found.part, found.ranks) == (Part.RANK, (3,))
    assert len(found.pairs) == 7


def test_a_slow_rank_among_many_is_named_though_not_all_its_pairs_are_timed_again() -> None:
    pairs = {(min(3, other), max(3, other)): 4000 * US for other in range(100) if other != 3}

    [found] = judged(timed(100, pairs), one_host(100))

    assert (found.part, found.ranks, len(found.pairs)) == (Part.RANK, (3,), 64)


def test_pairs_across_hosts_are_not_slow_for_being_slower_than_those_on_one_host() -> None:
    hosts = {rank: f"node{rank // 4}" for rank in range(8)}
    across = {pair: 4000 * US for pair in combinations(range(8), 2) if hosts[pair[0]] != hosts[pair[1]]}

    assert judged(timed(8, across), hosts) == ()


def test_a_host_whose_ranks_are_all_slow_towards_others_is_named() -> None:
    hosts = {rank: f"node{rank // 2}" for rank in range(8)}
    own = {rank for rank in hosts if hosts[rank] == "node2"}
    slow = {pair: 9000 * US for pair in combinations(range(8), 2) if len({*pair} & own) == 1}

    [found] = judged(timed(8, slow, 900 * US), hosts)

    assert (found.part, found.name, found.ranks) == (Part.HOST, "node2", (4, 5))


def test_the_way_between_two_hosts_is_named_when_both_are_fast_with_the_others() -> None:
    hosts = {rank: f"node{rank // 2}" for rank in range(8)}
    slow = {pair: 9000 * US for pair in combinations(range(8), 2) if {hosts[r] for r in pair} == {"node0", "node3"}}

    [found] = judged(timed(8, slow, 900 * US), hosts)

    assert (found.part, found.name, found.ranks) == (Part.HOSTS, "node0 and node3", (0, 1, 6, 7))


def test_a_pair_that_was_slow_once_and_not_again_is_nobodys() -> None:
    assert judged(timed(8, {(2, 5): 4000 * US}), one_host(8), alone=timed(8, {})) == ()


def test_a_pair_that_is_twice_as_slow_is_not_slow_enough() -> None:
    assert judged(timed(8, {(2, 5): 1100 * US}), one_host(8)) == ()


def test_a_link_that_only_delays_is_named_by_what_eight_bytes_take() -> None:
    [found] = judged(timed(8, {(2, 5): 900 * US}, small={(2, 5): 600 * US}), one_host(8))

    assert found.pairs == (SlowPair((2, 5), Measure.SMALL, 600 * US, 100 * US),)


def test_a_delay_of_eight_bytes_that_large_messages_do_not_have_is_no_links() -> None:
    assert judged(timed(8, {}, small={(2, 5): 600 * US}), one_host(8)) == ()


def test_two_ranks_have_nothing_to_be_compared_with() -> None:
    assert choose_again(timed(2, {(0, 1): 4000 * US}), one_host(2)) == Again((), ())


def test_the_order_of_the_times_changes_nothing() -> None:
    times = timed(8, {(2, 5): 4000 * US, (0, 1): 3000 * US})

    assert choose_again(times[::-1], one_host(8)) == choose_again(times, one_host(8))
    assert judged(times[::-1], one_host(8)) == judged(times, one_host(8))


# ------------------------------------------------------------------------------------------------------------ NCCL's log


def test_algorithm_and_protocol_are_read_as_new_and_old_versions_print_them() -> None:
    new = "n1:1:1 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n" * 2
    old = "n1:1:1 [0] NCCL INFO AllGather: 4096 Bytes -> Algo 1 proto 2 time 12.3\n"

    assert read_choices(new + old) == ("TREE/LL", "RING/SIMPLE")
    assert read_choices("n1:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f") == ()
