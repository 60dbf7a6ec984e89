"""Writes docs/scale.md and docs/pictures/scale.svg: `python -m bench.scale`, `make bench-scale`."""

import argparse
import json
import os
import platform
import shlex
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from bench.job import Job
from bench.run import compare, measure, render_comparison
from bench.scale.cost import Row, diagnose_files, diagnose_nodes, diagnose_together, written
from bench.scale.faults import FaultKind
from bench.scale.plot import Line, draw

_DOCS = Path(__file__).parents[2] / "docs"
_THROUGH_FILES = 16_384
"""Jobs up to this size are written to disk as a whole; larger ones go node by node through memory."""
_PAGE = """\
# Scale

`{command}`

{machine}. CPU seconds (user + system) and peak memory of the largest process. The processes that make the dumps are not
counted.

## Planted faults

{faults}

Each job has tensor, expert, data and pipeline parallel groups, messages in batches as Megatron sends them, and ring
buffers of 2,000 entries that have wrapped. One rank skips or adds a collective, issues another one, or one of another
size or type, swaps two groups, leaves a message out or sends another size, stops on the CPU, or is lost; everybody else
runs on until blocked. *Exact*: the cause, the rank alone, and the group and number (of a message: the channel) are those
of the fault. Of a lost rank without logs `inconclusive` is exact if it names this rank as the only one not known.

## Cost

{costs}

*forkpoint*: `forkpoint diagnose FOLDER`; dumps of more than 16,384 ranks are handed over node by node, since together they
fill a disk. *through summaries of nodes*: `forkpoint summarise` for every node of eight ranks, one after another in one
process, then `forkpoint diagnose` of all summaries; the sum of both. *right*: it names exactly the rank at fault.

![CPU seconds by ranks](pictures/scale.svg)

## Beside torchfrtrace

{comparison}

The same dumps for both, of `bench/job.py`: on the batches of messages in the worlds above torchfrtrace ends with a KeyError.

## Start

What a diagnosis of 8 ranks x 2,000 entries costs, where reading is next to nothing, is in [start](start.md).

## Speed of reading

{speed}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024, 8192, 100_000])
    parser.add_argument("--against", type=int, nargs="*", default=[64, 256, 1024], help="torchfrtrace at these sizes")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--fault-ranks", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=_DOCS / "scale.md")
    args = parser.parse_args()

    rows, speed = _costs(args.ranks, args.seed)
    import_s = measure([Path(sys.executable).parent / "torchfrtrace", "--help"]).cpu_s if args.against else 0.0
    compared = [compare(Job(ranks, 2000), with_torch=True) for ranks in args.against]
    page = _PAGE.format(
        command=shlex.join(["python", "-m", "bench.scale", *sys.argv[1:]]),
        machine=f"Python {platform.python_version()}, numpy {version('numpy')}, {platform.machine()}, {os.cpu_count()} cores",
        faults=_render_faults(args.fault_ranks, args.faults, args.seed) if args.faults else "Not run.",
        costs=_render_costs(rows),
        comparison=render_comparison(compared, import_s),
        speed=speed,
    )
    args.output.write_text(page)
    picture = args.output.parent / "pictures" / "scale.svg"
    picture.parent.mkdir(exist_ok=True)
    theirs = tuple((float(row.job.ranks), row.theirs.cpu_s - import_s) for row in compared if row.theirs)
    picture.write_text(draw([*_lines(rows), Line("torchfrtrace", theirs)]))
    print(page)


_Rows = dict[str, list[Row]]
"""By what was run."""


def _costs(sizes: list[int], seed: int) -> tuple[_Rows, str]:
    """Every size once with the compiled reader, if it is installed, and the small ones without it."""
    rows: _Rows = {"forkpoint": [], "through summaries of nodes": [], "without native": []}
    speed = "Not measured."
    for ranks in sizes:
        if ranks > _THROUGH_FILES:
            _say(f"{ranks} ranks, node by node")
            rows["forkpoint"].append(diagnose_together(ranks, FaultKind.SKIP, seed))
            rows["through summaries of nodes"].append(diagnose_nodes(ranks, FaultKind.SKIP, seed))
            continue
        with written(ranks, FaultKind.SKIP, seed) as folder:
            _say(f"{ranks} ranks in files")
            rows["forkpoint"].append(diagnose_files(folder, ranks, FaultKind.SKIP, seed))
            if ranks <= 1024:
                rows["without native"].append(diagnose_files(folder, ranks, FaultKind.SKIP, seed, native=False))
                speed = _render_speed(folder, ranks)
    return rows, speed


def _render_speed(folder: Path, ranks: int) -> str:
    told = json.loads(measure([sys.executable, "-m", "bench.scale.speed", folder]).output)
    return "\n".join(
        [
            f"| {ranks:,} dumps | plain read | read and summarised | share |",
            "|---|---|---|---|",
            *(
                f"| {name} | {told[f'plain_{key}']:,.0f} MB/s | {told[f'decode_{key}']:,.0f} MB/s "
                f"| {100 * told[f'decode_{key}'] / told[f'plain_{key}']:.0f} % |"
                for name, key in (("warm cache, per CPU second", "warm"), ("cold cache, by the clock", "cold"))
            ),
        ]
    )


def _render_costs(rows: _Rows) -> str:
    lines = ["| | ranks | read | CPU | peak | right |", "|---|---|---|---|---|---|"]
    for name, found in rows.items():
        told = name if name != "forkpoint" or find_spec("forkpoint_native") else "forkpoint (native not installed)"
        for row in found:
            read = f"{row.dumps_mb:,.0f} MB" if row.dumps_mb else "node by node"
            numbers = f"{row.ranks:,} | {read} | {row.cpu_s:.2f} s | {row.peak_mb:,.0f} MB"
            lines.append(f"| {told} | {numbers} | {'yes' if row.right else 'NO'} |")
    return "\n".join(lines)


def _lines(rows: _Rows) -> list[Line]:
    return [Line(name, tuple((float(row.ranks), row.cpu_s) for row in found)) for name, found in rows.items()]


def _render_faults(ranks: int, faults: int, seed: int) -> str:
    lines = ["| jobs | dumps | exact | rank named | innocent accused |", "|---|---|---|---|---|"]
    chosen = ["--ranks", str(ranks), "--faults", str(faults), "--seed", str(seed), "--json"]
    for told, damage in (("all", []), ("5 % missing, 5 % cut", ["--missing", "0.05", "--cut", "0.05"])):
        _say(f"{faults} planted faults, dumps: {told}")
        found = json.loads(measure([sys.executable, "-m", "bench.scale.accuracy", *chosen, *damage]).output)
        counted = f"{found['exact']} | {found['named']} | {found['accused']}"
        lines.append(f"| {faults} of {ranks:,} ranks | {told} | {counted} |")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
