"""Run the job of one or more cases and keep what a person would have: dumps, logs and stacks per rank.

    python cases/record.py --backend nccl --out /tmp/out cases/0007 cases/0008 --parallel 4 --tar out.tar.gz

Each rank of a case is one process running `source/train.py` from /tmp/job/<case>. How they are run is
`forkpoint.lab.ranks`; a checkout and torch are enough. Nothing is left running.
"""

import argparse
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from forkpoint.lab.ranks import DUMP_PREFIX, LabSettings, read_plan, run_ranks


def record(folder: Path, settings: LabSettings) -> str:
    """Run one case from start to end; the answer is one line for the person who waits."""
    plan = read_plan(folder)
    capture = settings.out / plan.name / "capture"
    ended = run_ranks(plan, settings, capture)
    dumps = len(list(capture.glob(DUMP_PREFIX + "*")))
    how = "asked" if ended.asked else "own"
    codes = list(ended.exits.values())
    return f"{plan.name}  {ended.seconds:5.1f} s  dumps {dumps}/{plan.world} ({how})  exit {codes}"


def pack(out: Path, target: Path) -> None:
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(out.rglob("*")):
            archive.add(path, arcname=path.relative_to(out), recursive=False)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", type=Path, metavar="CASE_DIR")
    parser.add_argument("--backend", choices=["nccl", "gloo"], required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--parallel", type=int, default=1, metavar="N")
    parser.add_argument("--limit", type=float, default=75, metavar="SECONDS")
    parser.add_argument("--linger", type=float, default=20, metavar="SECONDS", help="how long to wait after a dump")
    parser.add_argument("--pg-timeout", type=float, default=20, metavar="SECONDS")
    parser.add_argument("--tar", type=Path, metavar="FILE", help="also pack DIR into one tar.gz")
    return parser.parse_args()


def main() -> None:
    args = parse()
    settings = LabSettings(
        backend=args.backend, out=args.out, pg_timeout=args.pg_timeout, limit=args.limit, linger=args.linger
    )
    with ThreadPoolExecutor(args.parallel) as pool:
        running = [pool.submit(record, folder.resolve(), settings) for folder in args.cases]
        try:
            for job in as_completed(running):
                print(job.exception() or job.result(), flush=True)
        except KeyboardInterrupt:
            settings.cancelled.set()
            raise
    if args.tar:
        pack(args.out, args.tar)


if __name__ == "__main__":
    main()
