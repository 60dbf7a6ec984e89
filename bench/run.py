"""forkpoint against torchfrtrace on the same dumps, each in a process of its own: CPU seconds and peak memory."""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.job import Job

_BIN = Path(sys.executable).parent
_RESULTS = Path(__file__).parent / "results.md"
_PAGE = """\
# Benchmark

`{command}`

{machine}. CPU seconds (user + system) and peak memory of the largest process, each tool in a process of its own on the
same generated dumps: a job with world, tensor-parallel and data-parallel groups, 20 frames per entry, ring buffers
wrapped, one rank leaving at 97 %.

torchfrtrace runs with `--mismatch_cap 100000000`: otherwise it stops at the tenth mismatch. Importing torch
({import_s:.1f} s) is not counted for it; forkpoint's start-up is counted. `right`: forkpoint names exactly the rank that
left.

{tables}
"""


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    peak_mb: float
    """Of the largest process."""
    output: str


@dataclass(frozen=True, slots=True)
class Row:
    job: Job
    dumps_mb: float
    ours: Cost
    theirs: Cost | None

    @property
    def is_right(self) -> bool:
        return json.loads(self.ours.output)["suspects"] == [self.job.leaver]


def measure(command: Sequence[str | Path], ok: tuple[int, ...] = (0,)) -> Cost:
    """Run to the end. A child inherits its parent's peak memory, so this module imports nothing large."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode not in ok:
            raise SystemExit(
                f"{command} exits with {process.returncode}:\n{err.read().decode(errors='replace')[-4000:]}"
            )
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, out.read().decode(errors="replace"))


@contextmanager
def generated(job: Job) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="forkpoint-bench-") as folder:
        sizes = ["--ranks", str(job.ranks), "--entries", str(job.entries)]
        subprocess.run([sys.executable, "-m", "bench.generate", folder, *sizes], check=True)
        yield Path(folder)


def compare(job: Job, *, with_torch: bool) -> Row:
    with generated(job) as folder:
        _say(f"{job.ranks} ranks x {job.entries} entries: forkpoint")
        ours = measure([_BIN / "forkpoint", "diagnose", folder, "--json", "--quiet"], ok=(0, 1, 4))
        theirs = None
        if with_torch:
            _say(f"{job.ranks} ranks x {job.entries} entries: torchfrtrace")
            # Without the cap it stops at the tenth mismatch, before most of the work.
            theirs = measure([_BIN / "torchfrtrace", folder, "--mismatch_cap", "100000000"])
        return Row(job, sum(file.stat().st_size for file in folder.iterdir()) / 1e6, ours, theirs)


def render_comparison(rows: Sequence[Row], import_s: float) -> str:
    lines = [
        "| ranks x entries | dumps | forkpoint CPU | peak | torchfrtrace CPU | peak | CPU ratio | memory ratio | right |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        size = f"{row.job.ranks:,} x {row.job.entries:,} | {row.dumps_mb:,.0f} MB"
        ours = f"{row.ours.cpu_s:.2f} s | {row.ours.peak_mb:,.0f} MB"
        right = "yes" if row.is_right else "NO"
        if row.theirs is None:
            lines.append(f"| {size} | {ours} | | | | | {right} |")
            continue
        cpu_s = row.theirs.cpu_s - import_s
        theirs = f"{cpu_s:.1f} s | {row.theirs.peak_mb:,.0f} MB"
        ratios = f"{cpu_s / row.ours.cpu_s:.0f} x | {row.theirs.peak_mb / row.ours.peak_mb:.0f} x"
        lines.append(f"| {size} | {ours} | {theirs} | {ratios} | {right} |")
    return "\n".join(lines)


def render_start(help_cost: Cost, small: Row) -> str:
    diagnose = f"`forkpoint diagnose` on {small.job.ranks} ranks x {small.job.entries:,} entries"
    return "\n".join(
        [
            "| command | CPU | peak |",
            "|---|---|---|",
            f"| `forkpoint --help` | {help_cost.cpu_s:.3f} s | {help_cost.peak_mb:.0f} MB |",
            f"| {diagnose} | {small.ours.cpu_s:.2f} s | {small.ours.peak_mb:.0f} MB |",
        ]
    )


def render_page(command: str, tables: Sequence[str], import_s: float) -> str:
    return _PAGE.format(
        command=command,
        machine=f"Python {platform.python_version()}, numpy {version('numpy')}, torch {version('torch')}, "
        f"{platform.machine()}, {os.cpu_count()} cores",
        import_s=import_s,
        tables="\n\n".join(tables),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument(
        "--entries",
        type=int,
        nargs="+",
        default=[2000, 20000],
        help="the first is compared; the others run on the fewest ranks, to see whether memory grows",
    )
    parser.add_argument("--only-forkpoint", action="store_true", help="leave torchfrtrace out")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    args = parser.parse_args()
    entries, *more_entries = args.entries

    with_torch = not args.only_forkpoint
    import_s = measure([_BIN / "torchfrtrace", "--help"]).cpu_s if with_torch else 0.0
    start = render_start(measure([_BIN / "forkpoint", "--help"]), compare(Job(8, entries), with_torch=False))
    rows = [compare(Job(ranks, entries), with_torch=with_torch) for ranks in args.ranks]
    rows += [compare(Job(min(args.ranks), count), with_torch=False) for count in more_entries]
    command = shlex.join(["python", "-m", "bench.run", *sys.argv[1:]])
    page = render_page(command, [render_comparison(rows, import_s), start], import_s)
    print(page)
    args.output.write_text(page)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
