"""Which rank ran where, and only where that is proven."""

from pathlib import Path

import pytest

from forkpoint.evidence.machine.places import place_of_bus, read_places
from forkpoint.model.world import RankPlace
from looping import for_each

CASES = Path(__file__).parents[3] / "cases"


def init(rank: int, nranks: int, host: str = "node-1", bus: str = "3b000", pid: int = 10, gpu: int = 1) -> str:
    return (
        f"{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x48ee0840 rank {rank} nranks {nranks} cudaDev 0 "
        f"nvmlDev {gpu} busId {bus} commId 0xc0c3bdb52e03e3d6 - Init START"
    )


def seen(places: tuple[RankPlace, ...]) -> list[tuple[int, str, int | None, str]]:
    return [(place.rank, place.host, place.gpu, place.bus_id) for place in places]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_recorded_rank_is_placed_by_whose_file_it_is(rank) -> None:
    lines = (CASES / "0001" / "capture" / f"log_rank_{rank}.txt").read_text().splitlines()

    assert seen(read_places(lines, "log", rank)) == [(rank, "vm", 0, "0000:00:06.0")]


def test_the_rank_in_a_communicator_is_not_the_global_rank() -> None:
    assert read_places([init(3, 8)], "log", None) == ()
    assert seen(read_places([init(3, 8)], "log", 19)) == [(19, "node-1", 1, "0000:3b:00.0")]


def test_the_prefix_of_a_line_says_who_speaks() -> None:
    lines = [f"[rank19]: {init(3, 8)}", f"[rank20]:{init(4, 8, pid=11, bus='5d000')}", init(5, 8, pid=12, bus="86000")]

    assert [place.rank for place in read_places(lines, "log", None)] == [19, 20]


@for_each("prefix", ["3: ", "[default3]:", "(Worker pid=9, ip=10.0.0.1) ", "[3] ", "[Rank 3] "])
def test_a_launchers_prefix_is_no_global_rank(prefix) -> None:
    assert read_places([prefix + init(3, 8)], "log", None) == ()


def test_a_contradiction_places_nobody() -> None:
    assert read_places([f"[rank0]: {init(0, 8)}", f"[rank0]: {init(0, 8, host='node-2')}"], "log", None) == ()
    assert read_places([init(0, 2), init(1, 2, pid=11, bus="5d000")], "rank_3.log", 3) == ()


def test_old_lines_do_not_say_the_number_of_the_gpu() -> None:
    line = "simple-layoutlm:97:176 [0] NCCL INFO comm 0x7ff1ec001060 rank 0 nranks 2 cudaDev 0 busId 100000 - Init COMPLETE"

    assert seen(read_places([line], "log", 0)) == [(0, "simple-layoutlm", None, "0001:00:00.0")]


@for_each("end", [*range(0, 130, 7), 125, 126, 127, 128, 129, 130])
def test_a_cut_line_places_nobody_at_a_wrong_address(end) -> None:
    places = read_places([init(3, 8)[:end]], "log", 3)

    assert {place.bus_id for place in places} <= {"0000:3b:00.0"}
    assert {place.gpu for place in places} <= {1}


@for_each("line", [init(8, 8), init(3, 8, bus="fff"), init(3, 8).replace("NCCL INFO", "NCCL WARN"), "busId 3b000"])
def test_an_impossible_line_is_not_read(line) -> None:
    assert read_places([line], "log", 3) == ()


class TestPlaceOfBus:
    PLACES = (
        RankPlace(417, "node-52", 3, "0000:3b:00.0", "a", 1),
        RankPlace(418, "node-52", 4, "0000:5d:00.0", "a", 2),
        RankPlace(425, "node-53", 3, "0000:3b:00.0", "a", 3),
    )

    @pytest.mark.parametrize("bus", ["0000:3b:00.0", "PCI:0000:3b:00", "3b000", "00000000:3B:00.0"])
    @pytest.mark.parametrize("host", ["node-52", "node-52.cluster.local", "NODE-52"])
    def test_a_kernel_event_is_joined_to_its_rank(self, host, bus) -> None:
        place = place_of_bus(self.PLACES, host, bus)

        assert place is not None
        assert (place.rank, place.gpu) == (417, 3)

    @pytest.mark.parametrize(
        ("host", "bus"),
        [(None, "3b000"), ("node-52", None), ("node-52", "86000"), ("node-5", "3b000"), ("node-52", "nonsense")],
    )
    def test_an_unknown_gpu_is_nobodys(self, host, bus) -> None:
        assert place_of_bus(self.PLACES, host, bus) is None

    def test_a_gpu_that_ranks_share_names_none_of_them(self) -> None:
        shared = (*self.PLACES, RankPlace(7, "node-52", 3, "0000:3b:00.0", "b", 1))

        assert place_of_bus(shared, "node-52", "3b000") is None

    def test_a_rank_said_to_be_elsewhere_too_is_not_joined(self) -> None:
        moved = (*self.PLACES, RankPlace(417, "node-60", 3, "0000:3b:00.0", "b", 1))

        assert place_of_bus(moved, "node-52", "3b000") is None

    def test_hosts_of_two_domains_are_two_hosts(self) -> None:
        place = RankPlace(1, "node-1.east", 0, "0000:3b:00.0", "a", 1)

        assert place_of_bus([place], "node-1.west", "3b000") is None
        assert place_of_bus([place], "node-1", "3b000") == place
