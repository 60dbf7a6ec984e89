"""A summary of many ranks says the same whoever made it, in whatever order and tree."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.guard import beat as beats
from forkpoint.guard import summary as summaries
from forkpoint.guard.beat import RankState
from forkpoint.guard.leader import levels_led
from forkpoint.guard.summary import Conflict, merge, summarise
from guard.told import beat

pytestmark = pytest.mark.torch


def test_ranks_that_agree_have_no_conflict_however_far_apart_they_are() -> None:
    assert summarise([beat(0, 9), beat(1, 3), beat(2, 7), beat(3, 9)], []).conflicts == ()


def test_ranks_that_told_different_calls_of_one_seq_are_in_conflict() -> None:
    odd = beat(2, tail={1: 101, 2: 102, 3: 999, 4: 104, 5: 105})
    (conflict,) = summarise([beat(0), beat(2), odd], []).conflicts
    assert (conflict.what, conflict.at, conflict.group) == ("seq", 3, "0#a")


def test_the_same_name_with_other_members_is_another_group() -> None:
    assert not summarise([beat(0), beat(1, tail={3: 999}, group="0#b")], []).conflicts


@given(st.permutations(range(12)), st.integers(1, 11))
def test_merging_is_the_same_in_any_order_and_tree(order, cut) -> None:
    told = [beat(r, 3 + r % 3, done=r % 4, still_s=r / 10) for r in range(12)]
    told[5] = beat(5, state=RankState.RAISED, says="ValueError")
    told[7] = beat(7, tail={1: 101, 2: 555})
    straight = summarise(told, [])
    parts = [told[i] for i in order]
    tree = merge([summarise(parts[:cut], []), summarise(parts[cut:], [])])
    assert [(c.what, c.at) for c in tree.conflicts] == [(c.what, c.at) for c in straight.conflicts]
    for name in ("ranks", "still_s", "waiting", "finished", "timeout_s", "waits", "odd"):
        assert getattr(tree, name) == getattr(straight, name)
    assert tree.groups["0#a"].seen == 12


def test_what_a_rank_says_of_itself_counts_more_than_what_its_neighbour_saw() -> None:
    seen = beat(1, neighbour=(2, RankState.GONE))
    raised = beat(2, state=RankState.RAISED, says="ValueError: bad")
    (odd,) = summarise([seen, raised], []).odd
    assert odd.state is RankState.RAISED


def test_a_group_whose_members_all_lie_below_is_not_told_further() -> None:
    below = summarise([beat(r, size=4) for r in range(4)], [])
    beyond = summarise([beat(r, size=8, group="1#c") for r in range(4)], [])
    assert summaries.decode(summaries.encode(below)).groups == {}
    assert "1#c" in summaries.decode(summaries.encode(beyond)).groups


def test_summaries_and_beats_survive_the_journey() -> None:
    told = beat(3, 9, done=4, steps={7: {"0#a": 9}}, neighbour=(4, RankState.STOPPED))
    assert beats.decode(beats.encode(told)) == told
    whole = summarise([told, beat(1)], [1])
    assert summaries.decode(summaries.encode(whole)) == whole


@given(st.binary(max_size=200) | st.sampled_from([b"[]", b"{}", b"null", b'{"groups": 3, "steps": []}']))
def test_anything_else_in_the_store_is_ignored(data) -> None:
    assert beats.decode(data) is None
    assert summaries.decode(data) is None


def test_steps_are_compared_where_both_ranks_told_them() -> None:
    told = [beat(r, steps={6: {"0#a": 40}, 7: {"0#a": 44}}) for r in range(3)]
    told.append(beat(3, steps={7: {"0#a": 43}}))
    (conflict,) = summarise(told, []).conflicts
    assert (conflict.what, conflict.at) == ("step", 7)
    assert 3 in conflict.ranks


def test_every_rank_has_exactly_one_leader_on_every_level_and_rank_zero_leads_all() -> None:
    for world in (1, 4, 64, 65, 10_000, 100_000):
        led = {rank: levels_led(rank, world) for rank in range(world)}
        assert led[0] == max(led.values())
        leaders = [sum(1 for levels in led.values() if levels >= level) for level in range(1, led[0] + 1)]
        assert leaders[-1] == 1
        assert leaders[0] == -(-world // 64)


def test_ten_thousand_ranks_make_a_small_summary_that_names_the_one_that_differs() -> None:
    """Through the real tree: leaders of 64, and leaders of those. Each rank is in the world and in a pair."""
    random.seed(1)
    branches = []
    for first in range(0, 10_000, 64):
        members = range(first, min(first + 64, 10_000))
        told = [beat(r, 60, tail={s: s for s in range(1, 61)}, size=10_000) for r in members]
        if 7777 in members:
            told[7777 - first] = beat(7777, 60, tail={s: s + (s == 33) for s in range(1, 61)}, size=10_000)
        branches.append(summaries.encode(summarise(told, [])))
    top = merge([part for data in branches if (part := summaries.decode(data))])
    assert top.ranks == 10_000
    assert isinstance(top.conflicts[0], Conflict)
    assert 7777 in {r for c in top.conflicts for r in c.ranks}
    assert max(map(len, branches)) < 4096
    assert len(summaries.encode(top)) < 4096
