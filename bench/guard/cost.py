"""What the guard costs: step time, CPU, memory, bytes, and a projection to large jobs. About 25 minutes on two cores.

    python -m bench.guard.cost --pairs 60

Prints the tables of docs/guard.md. Step times mean something on a quiet machine only: the load stands beside them.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from bench.guard import rank_cost, scale, step_time
from bench.guard.rank_cost import RankCost, Setup
from bench.guard.scale import Projection
from bench.guard.step_time import Ratio, StepTime
from forkpoint.guard.settings import Settings

_CHECKS = 2
"""Small requests of a look that finds nothing: was something asked, is there a verdict."""
_BLOCK_S = 4.0
"""A full recorder is read so often."""
_RINGS = (2000, 1000, 256)
_GROUPS = (1, 3, 8)
_WORLDS = (64, 10_000, 100_000)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def step_row(found: StepTime) -> list[str]:
    return [
        str(found.world),
        f"{found.plain_ms:.1f} ms",
        of_ratio(found.wall),
        of_ratio(found.cpu),
        f"{found.detail:.2f}",
        str(found.wall.pairs),
        f"{found.load:.1f}",
    ]


def cpu_rows(costs: Sequence[RankCost]) -> list[list[str]]:
    """Of rank 0, which reads all the others, and of the last."""
    return [
        [name, f"{100 * cost.idle.cpu:.2f} %", f"{100 * cost.busy.cpu:.2f} %"]
        for name, cost in (("0", costs[0]), ("another", costs[-1]))
    ]


def bytes_row(groups: int, costs: Sequence[RankCost]) -> list[str]:
    zero, other = costs[0].busy, costs[-1].busy
    return [
        str(groups),
        *(f"{value / 1000:.1f} kB" for value in (zero.sent, zero.received, other.sent, other.received)),
        f"{other.requests:.0f}",
    ]


def projection_row(groups: int, found: Projection) -> list[str]:
    return [
        f"{found.world:,}",
        str(groups),
        *(f"{100 * cpu:.2f} %" for cpu in (found.rank_cpu, found.leader_cpu, found.top_cpu, found.store_cpu)),
        f"{found.store_requests:,.0f}",
        f"{(found.store_in + found.store_out) / 1e6:,.1f} MB",
    ]


def print_steps(worlds: Sequence[int], pairs: int, folder: Path) -> None:
    head = ("ranks", "step", "guard / none", "its CPU / none", "DETAIL / none", "pairs", "load")
    rows = [step_row(step_time.measure(world, pairs, _BLOCK_S, folder / f"step-{world}")) for world in worlds]
    print(f"{table(head, rows)}\n", flush=True)


def print_rank_costs(seconds: float, folder: Path) -> None:
    by_groups = {g: rank_cost.measure(Setup(4, g), seconds, folder / f"groups-{g}") for g in _GROUPS}
    print(f"{table(('rank', 'only polls', 'reads calls'), cpu_rows(by_groups[1]))}\n")
    head = ("groups", "rank 0 sends", "receives", "another sends", "receives", "requests")
    print(f"{table(head, [bytes_row(groups, costs) for groups, costs in by_groups.items()])}\n", flush=True)
    without = rank_cost.measure(Setup(guarded=False), seconds, folder / "plain")[1].grown_mb
    rows = [["none", "2000", f"{without:.1f} MB"]]
    for ring in _RINGS:
        cost = rank_cost.measure(Setup(ring=ring), seconds, folder / f"ring-{ring}")[1]
        rows.append(["guard", str(ring), f"{cost.grown_mb:.1f} MB"])
    traced = rank_cost.measure(Setup(traced=True), seconds, folder / "traced")[1]
    rows.append(["of it allocated by Python", "2000", f"{traced.traced_mb:.1f} MB"])
    print(table(("", "recorded calls", "memory of a rank grows by"), rows))
    print(f"\nA rank that is asked hands over {by_groups[1][1].answer_bytes / 1000:,.0f} kB.\n", flush=True)


def print_projection() -> None:
    head = ("ranks", "groups", "a rank", "a leader of 64", "rank 0", "the store", "requests/s", "store's traffic/s")
    parts = [scale.measure(groups) for groups in _GROUPS]
    print(
        table(
            head,
            [
                projection_row(part.groups, scale.project(world, part, Settings().interval_s(world), _CHECKS))
                for world in _WORLDS
                for part in parts
            ],
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--pairs", type=int, default=60, help=f"of blocks of {_BLOCK_S:.0f} seconds")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each figure of CPU and bytes")
    parser.add_argument("--only", choices=("steps", "ranks", "scale"))
    args = parser.parse_args()
    python = ".".join(map(str, sys.version_info[:3]))
    load = os.getloadavg()[0]
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {python}, torch {torch.__version__}, load {load:.1f}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        if args.only in (None, "steps"):
            print_steps(args.ranks, args.pairs, Path(folder))
        if args.only in (None, "ranks"):
            print_rank_costs(args.seconds, Path(folder))
    if args.only in (None, "scale"):
        print_projection()


if __name__ == "__main__":
    main()
