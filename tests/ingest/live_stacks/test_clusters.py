"""Which ranks stand together, and which stand apart."""

import random

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.evidence.stacks.read import read_live_stacks
from forkpoint.evidence.stacks.shapes import Shape
from forkpoint.evidence.stacks.threads import RankStacks, Thread, ThreadKind, cluster
from forkpoint.model.op import Frame
from ingest.live_stacks.recorded import recorded

C10D = "/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
DYNAMO = "/env/lib/python3.12/site-packages/torch/_dynamo/convert_frame.py"


def at(rank: int | None, line: int, *inner: Frame, file: str = "x", folder: str = "/train") -> RankStacks:
    user = Frame("main", f"{folder}/train.py", line), Frame("<module>", f"{folder}/train.py", 99)
    main = Thread(None, ThreadKind.MAIN, (*inner, *user), 1, None, holds_gil=False)
    return RankStacks(rank, file, (main,))


def ranks_of(*stacks: RankStacks) -> list[tuple[int, ...]]:
    return [c.ranks for c in cluster(stacks)]


def test_ranks_at_the_same_lines_of_user_code_are_together_largest_first() -> None:
    assert ranks_of(at(0, 9), at(1, 5), at(2, 5), at(3, 5)) == [(1, 2, 3), (0,)]


def test_lines_inside_libraries_do_not_part_ranks() -> None:
    assert ranks_of(at(0, 5, Frame("all_reduce", C10D, 3068)), at(1, 5, Frame("all_reduce", C10D, 3252))) == [(0, 1)]


def test_how_deep_a_rank_is_in_the_same_call_does_not_part_ranks() -> None:
    call = Frame("all_reduce", C10D, 3068)

    assert ranks_of(at(0, 5, call), at(1, 5, Frame("get_rank", C10D, 700), call)) == [(0, 1)]


def test_another_call_on_the_same_line_parts_ranks() -> None:
    assert ranks_of(at(0, 5, Frame("all_reduce", C10D, 1)), at(1, 5, Frame("all_gather", C10D, 2))) == [(0,), (1,)]


def test_another_shape_on_the_same_line_parts_ranks() -> None:
    communicating = [at(rank, 5, Frame("all_reduce", C10D, 1)) for rank in range(3)]
    clusters = cluster([*communicating, at(3, 5, Frame("compile_frame", DYNAMO, 9))])

    assert [(c.ranks, c.shape) for c in clusters] == [((0, 1, 2), Shape.COLLECTIVE), ((3,), Shape.COMPILE)]


def test_hosts_may_keep_the_program_in_different_folders() -> None:
    assert ranks_of(at(0, 5, folder="/scratch/0/train"), at(1, 5, folder="/scratch/1/train")) == [(0, 1)]


def test_formats_may_be_mixed() -> None:
    stacks = read_live_stacks(recorded("debug_server_stacks.txt"), "stacks", None)
    others = read_live_stacks(recorded("debug_server_pyspy.txt"), "pyspy", None)
    renumbered = [RankStacks((s.rank or 0) + 2, s.file, s.threads) for s in others]

    assert ranks_of(*stacks, *renumbered) == [(0, 2), (1, 3)]


def test_native_stacks_without_user_code_are_compared_by_their_named_frames() -> None:
    text = recorded("gdb_bt_barrier.txt")
    first, second = (read_live_stacks(text, "x", rank)[0] for rank in (0, 1))
    other = read_live_stacks(recorded("gdb_bt.txt"), "x", 2)[0]

    assert ranks_of(first, second, other) == [(0, 1), (2,)]


def test_a_rank_without_a_number_or_main_thread_is_in_no_cluster() -> None:
    helper = Thread("pt_autograd_0", ThreadKind.AUTOGRAD, (Frame("f", "t.py", 1),), 1, None, holds_gil=False)

    assert ranks_of(at(None, 5), RankStacks(1, "x", (helper,)), at(2, 5)) == [(2,)]


def test_a_rank_whose_stack_was_too_deep_to_show_the_program_is_not_odd() -> None:
    deep = "Current thread 0x1 (most recent call first):\n" + '  File "/train/model.py", line 3 in forward\n' * 100
    (unknown,) = read_live_stacks(deep, "x", 3)

    assert unknown.main is not None
    assert ranks_of(at(0, 5), at(1, 5), at(2, 5), unknown) == [(0, 1, 2)]


def test_a_rank_that_waits_at_its_end_stands_apart() -> None:
    text = 'Current thread 0x1 (most recent call first):\n  File "/usr/lib/python3.12/threading.py", line 1624 in _shutdown\n'
    (leaving,) = read_live_stacks(text, "x", 3)

    assert ranks_of(at(0, 5), at(1, 5), at(2, 5), leaving) == [(0, 1, 2), (3,)]


def test_of_a_rank_that_was_dumped_twice_the_later_file_counts_in_any_order() -> None:
    early, late = at(0, 5, file="stacks_20261115_043518.txt"), at(0, 9, file="stacks_20261115_043603.txt")

    assert cluster([early, late]) == cluster([late, early])
    assert cluster([early, late])[0].stack[0].line == 9


places = st.lists(st.integers(1, 4), max_size=12)


@given(places, st.randoms(use_true_random=False))
def test_clusters_partition_the_ranks_in_any_order_of_input(lines: list[int], chance: random.Random) -> None:
    stacks = [at(rank, line) for rank, line in enumerate(lines)]
    clusters = cluster(stacks)
    shuffled = list(stacks)
    chance.shuffle(shuffled)

    assert cluster(shuffled) == clusters
    assert sorted(rank for c in clusters for rank in c.ranks) == list(range(len(lines)))
    sizes = [len(c.ranks) for c in clusters]
    assert sizes == sorted(sizes, reverse=True)
