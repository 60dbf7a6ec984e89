"""Where ranks stand in a job with tensor, expert, data and pipeline parallel groups."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self


class Kind(IntEnum):
    """The groups every rank belongs to; the value is the number the rank gives it (`pg_id`)."""

    WORLD = 0
    TP = 1
    PP = 2
    DP = 3
    EP = 4


DESC = {
    Kind.WORLD: "default_pg",
    Kind.TP: "TENSOR_MODEL_PARALLEL_GROUP",
    Kind.PP: "PIPELINE_MODEL_PARALLEL_GROUP",
    Kind.DP: "DATA_PARALLEL_GROUP",
    Kind.EP: "EXPERT_MODEL_PARALLEL_GROUP",
}


class Place(NamedTuple):
    """A rank as seen from the faulty one: its stage, and in which other directions it stands in line with it.

    Nothing else about a rank matters: exchanging two ranks of one place changes nothing. So a job of any size behaves as
    one of these places does.
    """

    stage: int
    same_tp: bool
    same_ep: bool
    same_dp: bool


class _Point(NamedTuple):
    stage: int
    dp: int
    ep: int
    tp: int


@dataclass(frozen=True)
class Mesh:
    """Ranks in Megatron's order: tensor parallel ones are neighbours, pipeline stages lie furthest apart."""

    tp: int
    ep: int
    """Expert parallel ranks, within data parallel ones."""
    dp: int
    """Data parallel replicas of `ep` ranks each."""
    pp: int

    @classmethod
    def of(cls, ranks: int) -> Self:
        """Groups of four members or more, so that a vote can decide; larger jobs have the usual eight."""
        tp = 8 if ranks >= 256 else 4
        pp = next(n for n in (8, 5, 4) if ranks % (tp * n) == 0 and (n == 4 or ranks >= 4096))
        rest = ranks // (tp * pp)
        ep = next(n for n in (8, 5, 4, 1) if rest % n == 0 and n <= max(4, rest // 4))
        return cls(tp, ep, rest // ep, pp)

    @property
    def ranks(self) -> int:
        return self.tp * self.ep * self.dp * self.pp

    def point(self, rank: int) -> _Point:
        rest, tp = divmod(rank, self.tp)
        rest, ep = divmod(rest, self.ep)
        stage, dp = divmod(rest, self.dp)
        return _Point(stage, dp, ep, tp)

    def rank(self, point: _Point) -> int:
        return ((point.stage * self.dp + point.dp) * self.ep + point.ep) * self.tp + point.tp

    def stage(self, rank: int) -> int:
        return rank // (self.tp * self.ep * self.dp)

    def at_stage(self, rank: int, stage: int) -> int:
        """The rank that stands at this stage in the same pipeline."""
        return self.rank(self.point(rank)._replace(stage=stage))

    def place(self, rank: int, of: int) -> Place:
        mine, other = self.point(rank), self.point(of)
        return Place(mine.stage, mine.tp == other.tp, mine.ep == other.ep, mine.dp == other.dp)

    def places(self) -> list[Place]:
        """All there are; a direction with one rank has no others."""
        sizes = (self.tp, self.ep, self.dp)
        return [
            Place(stage, bool(flags & 1), bool(flags & 2), bool(flags & 4))
            for stage in range(self.pp)
            for flags in range(8)
            if all(flags >> n & 1 or size > 1 for n, size in enumerate(sizes))
        ]

    def members(self, rank: int, kind: Kind) -> range:
        point = self.point(rank)
        match kind:
            case Kind.WORLD:
                return range(self.ranks)
            case Kind.TP:
                first, step, count = point._replace(tp=0), 1, self.tp
            case Kind.EP:
                first, step, count = point._replace(ep=0), self.tp, self.ep
            case Kind.DP:
                first, step, count = point._replace(ep=0, dp=0), self.tp, self.ep * self.dp
            case Kind.PP:
                first, step, count = point._replace(stage=0), self.tp * self.ep * self.dp, self.pp
        start = self.rank(first)
        return range(start, start + step * count, step)

    def group_name(self, rank: int, kind: Kind) -> str:
        """Names of one kind sort between those of the others, so all headers have the same order."""
        return str(kind * 1_000_000 + self._number(rank, kind)) if kind else "0"

    def _number(self, rank: int, kind: Kind) -> int:
        point = self.point(rank)
        match kind:
            case Kind.TP:
                return rank // self.tp
            case Kind.PP:
                return rank % (self.tp * self.ep * self.dp)
            case Kind.DP:
                return point.stage * self.tp + point.tp
            case _:
                return (point.stage * self.dp + point.dp) * self.tp + point.tp
