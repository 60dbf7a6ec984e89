"""A 3-D training job that hangs because one rank leaves: who calls what, and how far everyone comes."""

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import cache, cached_property

from bench.pickler import Frame

_LAYERS = 16
_MICROBATCHES = 2
_STEPS_BEFORE = 300
"""Trained before the hang, so that every ring buffer has wrapped."""
_FRAMES = 20

_PACKAGES = "/opt/conda/envs/train/lib/python3.11/site-packages/"
_TORCH = _PACKAGES + "torch/"
_MODEL = _PACKAGES + "trainer/model.py"
_TRAIN = "/srv/trainer/train.py"


class Group(IntEnum):
    """The groups every rank belongs to; the value is the number the rank gives it (`pg_id`)."""

    WORLD = 0
    TP = 1
    DP = 2


class Place(Enum):
    """Where a rank stands towards the one that leaves. Ranks of one place record the same."""

    LEAVER = auto()
    SAME_TP = auto()
    SAME_DP = auto()
    OTHER = auto()


_TOGETHER = {
    Group.WORLD: (frozenset(Place),),
    Group.TP: (frozenset({Place.LEAVER, Place.SAME_TP}), frozenset({Place.SAME_DP, Place.OTHER})),
    Group.DP: (frozenset({Place.LEAVER, Place.SAME_DP}), frozenset({Place.SAME_TP, Place.OTHER})),
}
"""Which places meet in a group. Every tensor-parallel group meets every data-parallel one in exactly one rank."""


@dataclass(frozen=True, slots=True)
class Call:
    group: Group
    name: str
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    dtype: str
    stack: tuple[Frame, ...]
    backward: bool
    """Issued by the autograd thread."""


@dataclass(frozen=True)
class Job:
    ranks: int
    entries: int
    """Size of the ring buffer."""

    @cached_property
    def tp(self) -> int:
        return max(1, min(8, self.ranks // 2))

    @property
    def dp(self) -> int:
        return self.ranks // self.tp

    @property
    def leaver(self) -> int:
        return self.ranks * 5 // 7

    @property
    def end(self) -> int:
        """Calls issued by everyone but the leaver: hosts run ahead of a GPU that waits."""
        return _STEPS_BEFORE * len(self.step) + self.entries

    @property
    def leave(self) -> int:
        """Calls issued by the leaver. Its buffer is as full as the others', so it begins as much earlier."""
        return self.end - self.entries * 3 // 100

    @cached_property
    def step(self) -> tuple[Call, ...]:
        """The calls of one training step, which every rank repeats."""
        return tuple(_one_step(self.dp))

    def call(self, index: int) -> Call:
        return self.step[index % len(self.step)]

    def seq(self, index: int) -> int:
        """Position of a call among those of its group, from 1."""
        step, within = divmod(index, len(self.step))
        per_step, position = self._positions[within]
        return step * per_step + position

    @cached_property
    def _positions(self) -> tuple[tuple[int, int], ...]:
        groups = [call.group for call in self.step]
        return tuple((groups.count(group), groups[: n + 1].count(group)) for n, group in enumerate(groups))

    def place(self, rank: int) -> Place:
        if rank == self.leaver:
            return Place.LEAVER
        if rank // self.tp == self.leaver // self.tp:
            return Place.SAME_TP
        return Place.SAME_DP if rank % self.tp == self.leaver % self.tp else Place.OTHER

    def members(self, rank: int, group: Group) -> range:
        if group == Group.WORLD:
            return range(self.ranks)
        first = rank - rank % self.tp
        return range(first, first + self.tp) if group == Group.TP else range(rank % self.tp, self.ranks, self.tp)

    def group_name(self, rank: int, group: Group) -> str:
        """Names of one kind sort between those of the others, so all headers have the same order."""
        number = {Group.WORLD: 0, Group.TP: rank // self.tp, Group.DP: rank % self.tp}[group]
        return "0" if group == Group.WORLD else str(group * 1_000_000 + number)

    @cached_property
    def reach(self) -> dict[Place, int]:
        """The last call each place comes to: the leaver's last, and for the others the one in which they wait."""
        reach = dict.fromkeys(Place, self.end) | {Place.LEAVER: self.leave - 1}
        changed = True
        while changed:
            new = {place: self._blocked(place, reach) for place in Place}
            changed, reach = new != reach, new
        return reach

    def _blocked(self, place: Place, reach: dict[Place, int]) -> int:
        if place == Place.LEAVER:
            return reach[place]
        for index in range(self.leave, self.end):
            mates = next(together for together in _TOGETHER[self.call(index).group] if place in together)
            if any(reach[mate] < index for mate in mates):
                return index
        return self.end


def _one_step(dp: int) -> list[Call]:
    calls: list[Call] = []
    activation = ((1, 8192, 4096), (1, 8192, 4096))
    for _ in range(_MICROBATCHES):
        for layer in range(_LAYERS):
            shard = 65536 * (1 + layer % 4)
            calls += [
                _call(Group.DP, "_all_gather_base", ((shard,), (shard * dp,)), "BFloat16", layer),
                _call(Group.TP, "all_reduce", activation, "BFloat16", layer),
                _call(Group.TP, "all_reduce", activation, "BFloat16", layer + _LAYERS),
            ]
        for layer in reversed(range(_LAYERS)):
            shard = 65536 * (1 + layer % 4)
            calls += [
                _call(Group.TP, "all_reduce", activation, "BFloat16", layer, backward=True),
                _call(Group.DP, "_reduce_scatter_base", ((shard * dp,), (shard,)), "Float", layer, backward=True),
            ]
    calls.append(_call(Group.WORLD, "all_reduce", ((1,), (1,)), "Float", 0))
    calls.append(_call(Group.WORLD, "all_reduce", ((2,), (2,)), "Double", 1))
    return calls


def _call(
    group: Group,
    op: str,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: str,
    site: int,
    *,
    backward: bool = False,
) -> Call:
    stack = (*_LEAVES[op], *_caller(group, site, backward=backward))
    return Call(group, f"nccl:{op}", *sizes, dtype, stack[:_FRAMES], backward)


@cache
def _frame(name: str, filename: str, line: int) -> Frame:
    return Frame(name, filename, line)


_LEAVES = {
    "_all_gather_base": (
        _frame("all_gather_into_tensor", _TORCH + "distributed/distributed_c10d.py", 4177),
        _frame("wrapper", _TORCH + "distributed/c10d_logger.py", 83),
        _frame("foreach_all_gather", _TORCH + "distributed/fsdp/_fully_shard/_fsdp_collectives.py", 203),
        _frame("unshard", _TORCH + "distributed/fsdp/_fully_shard/_fsdp_param_group.py", 288),
    ),
    "_reduce_scatter_base": (
        _frame("reduce_scatter_tensor", _TORCH + "distributed/distributed_c10d.py", 4715),
        _frame("wrapper", _TORCH + "distributed/c10d_logger.py", 83),
        _frame("foreach_reduce", _TORCH + "distributed/fsdp/_fully_shard/_fsdp_collectives.py", 479),
        _frame("post_backward", _TORCH + "distributed/fsdp/_fully_shard/_fsdp_param_group.py", 432),
    ),
    "all_reduce": (
        _frame("all_reduce", _TORCH + "distributed/distributed_c10d.py", 3245),
        _frame("wrapper", _TORCH + "distributed/c10d_logger.py", 83),
        _frame("all_reduce", _TORCH + "distributed/_functional_collectives.py", 172),
    ),
}


def _caller(group: Group, site: int, *, backward: bool) -> list[Frame]:
    """The user's side of a stack: as deep as a transformer under FSDP is, and another one for every site."""
    trainer = [
        _frame("train_step", _TRAIN, 402),
        _frame("train", _TRAIN, 488),
        _frame("main", _TRAIN, 612),
        _frame("<module>", _TRAIN, 640),
    ]
    if group == Group.WORLD:
        return [_frame("log_metrics", _TRAIN, 300 + site), *trainer]
    modules = [
        frame
        for depth in range(4)
        for frame in (
            _frame("_wrapped_call_impl", _TORCH + "nn/modules/module.py", 1775),
            _frame("_call_impl", _TORCH + "nn/modules/module.py", 1786),
            _frame(f"forward_{depth}", _MODEL, 100 + 20 * site + depth),
        )
    ]
    if backward:
        return [_frame(f"backward_{group.name.lower()}", _MODEL, 1000 + site), *modules]
    return [*modules, *trainer]
