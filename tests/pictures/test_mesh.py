import numpy as np

from forkpoint.model.picture import Picture
from forkpoint.model.world import RankPlace
from looping import for_each
from pictures.drawn import drawn
from small_jobs import SmallJob

Groups = dict[str, tuple[str, tuple[int, ...]]]


def job_of(world: int, groups: Groups) -> SmallJob:
    job = SmallJob(world, groups=groups)
    job.op()
    for name in groups:
        job.op(group=name)
    return job


def families(world: int, **strides: tuple[int, int]) -> Groups:
    """`tp=(size, stride)`: all groups of a mesh."""
    found: Groups = {}
    for desc, (size, stride) in strides.items():
        for first in range(world):
            if first // stride % size == 0:
                members = tuple(range(first, first + size * stride, stride))
                found[str(len(found) + 1)] = (desc, members)
    return found


def axes(picture: Picture) -> list[tuple[str, int]]:
    return [(axis.name, axis.size) for axis in picture.axes]


def test_groups_that_cover_the_job_are_axes_the_outermost_first() -> None:
    groups = families(8, mesh_tp=(2, 1), mesh_pp=(2, 2), mesh_dp=(2, 4))

    picture = drawn(job_of(8, groups).capture()).picture

    assert axes(picture) == [("dp", 2), ("pp", 2), ("tp", 2)]
    assert picture.position.tolist() == [[d, p, t] for d in range(2) for p in range(2) for t in range(2)]


def test_a_flattened_group_does_not_stand_in_for_its_parts() -> None:
    groups = families(8, mesh_tp=(2, 1), mesh_dp=(2, 4), mesh_cp=(2, 2))
    groups |= {"20": ("mesh_dp_cp", (0, 2, 4, 6)), "21": ("mesh_dp_cp", (1, 3, 5, 7))}

    assert axes(drawn(job_of(8, groups).capture()).picture) == [("dp", 2), ("cp", 2), ("tp", 2)]


def test_groups_numbered_by_hand_are_one_family() -> None:
    groups = {str(i + 1): (f"tp_{i}", (2 * i, 2 * i + 1)) for i in range(3)}

    picture = drawn(job_of(6, groups).capture()).picture

    assert axes(picture) == [("replica", 3), ("tp", 2)]
    assert picture.position.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]


def test_the_stride_tells_the_place_of_ranks_whose_groups_nobody_declares() -> None:
    job = job_of(8, families(8, mesh_tp=(2, 1)))

    picture = drawn(job.capture(ranks=[0, 2, 4])).picture

    assert axes(picture) == [("replica", 4), ("tp", 2)]
    assert picture.position[:, 1].tolist() == [0, 1] * 4


@for_each("members", [((0, 1),), ((0, 1), (1, 2), (2, 3)), ((0, 1, 2), (3,))])
def test_groups_that_do_not_tile_the_job_are_no_axis(members: tuple[tuple[int, ...], ...]) -> None:
    groups = {str(i + 1): ("some", ranks) for i, ranks in enumerate(members)}

    picture = drawn(job_of(6, groups).capture()).picture

    assert axes(picture) == [("rank", 6)]
    assert picture.position.tolist() == [[i] for i in range(6)]


def test_without_such_groups_it_is_node_by_local_rank() -> None:
    capture = job_of(4, {}).capture()
    places = tuple(RankPlace(rank, "ab"[rank // 2], 1 - rank % 2, "", "log", 1) for rank in range(4))

    picture = drawn(type(capture)(capture.traces, capture.tables, places=places)).picture

    assert axes(picture) == [("node", 2), ("local rank", 2)]
    assert picture.position.tolist() == [[0, 1], [0, 0], [1, 1], [1, 0]]
    assert (picture.hosts, picture.host.tolist(), picture.local.tolist()) == (("a", "b"), [0, 0, 1, 1], [1, 0, 1, 0])


def test_hosts_of_some_ranks_alone_are_kept_but_lay_out_nothing() -> None:
    capture = job_of(4, {}).capture()
    places = (RankPlace(1, "a", None, "", "log", 1), RankPlace(2, "b", None, "", "log", 1))

    picture = drawn(type(capture)(capture.traces, capture.tables, places=places)).picture

    assert axes(picture) == [("rank", 4)]
    assert picture.host.tolist() == [-1, 0, 1, -1]
    assert picture.local.tolist() == [-1, -1, -1, -1]


@for_each("shape", [{"a": (2, 1), "b": (3, 2)}, {"a": (4, 1)}, {"a": (2, 6), "b": (2, 1)}, {}])
def test_no_two_ranks_share_a_place(shape: dict[str, tuple[int, int]]) -> None:
    picture = drawn(job_of(12, families(12, **shape)).capture()).picture

    assert len(np.unique(picture.position, axis=0)) == 12
    assert (picture.position < [axis.size for axis in picture.axes]).all()
