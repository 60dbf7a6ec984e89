"""Two checkouts on the same dumps, in turn: `python -m bench.scale.beside ../before .`.

Prints CPU seconds and peak memory of `forkpoint diagnose` for each; the least of `--times` runs, because other work on the
machine only adds to it. Both are run by this interpreter and its packages, the compiled decoder included.
"""

import argparse
import compileall
import sys
from pathlib import Path

from bench.run import Cost, measure
from bench.scale.cost import FOUND, environment, written
from bench.scale.faults import FaultKind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs=2, metavar="CHECKOUT")
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 1024, 8192])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for checkout in options.checkouts:  # neither may pay for compiling its modules
        compileall.compile_dir(checkout / "src", quiet=2)
    print("| ranks | CPU before | CPU after | peak before | peak after |\n|---|---|---|---|---|")
    for ranks in options.ranks:
        with written(ranks, FaultKind.SKIP, options.seed) as folder:
            runs = [[_diagnose(checkout, folder) for checkout in options.checkouts] for _ in range(options.times)]
        before, after = (
            (min(c.cpu_s for c in costs), min(c.peak_mb for c in costs)) for costs in zip(*runs, strict=True)
        )
        more = [f"{100 * (b / a - 1):+.0f} %" for a, b in zip(before, after, strict=True)]
        cells = f"{before[0]:.2f} s | {after[0]:.2f} s ({more[0]}) | {before[1]:.0f} MB | {after[1]:.0f} MB ({more[1]})"
        print(f"| {ranks:,} | {cells} |", flush=True)


def _diagnose(checkout: Path, folder: Path) -> Cost:
    with environment(PYTHONPATH=str(checkout.resolve() / "src")):
        return measure([sys.executable, "-m", "forkpoint", "diagnose", folder, "--json", "--quiet"], ok=FOUND)


if __name__ == "__main__":
    main()
