"""Dumps of a large world, node after node, for a reader in another process: `python -m bench.scale.feed`.

Both sides share a folder. The feeder writes a node's dumps there, the reader says on the feeder's standard
input when it has read them, and they are removed: 100,000 dumps take no more room than a few.
"""

import argparse
import shutil
import sys
from pathlib import Path

from bench.scale.dumps import Dumps
from bench.scale.faults import FaultKind, one_world

NODE = 8
"""Ranks per node."""
AHEAD = 8
"""Nodes written and not yet read."""


def write_dumps(folder: Path, dumps: Dumps, ranks: range) -> None:
    """One file per rank, named as PyTorch names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        if rank in dumps:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(dumps.dump(rank))


def feed(folder: Path, dumps: Dumps) -> None:
    """Says each node's folder on standard output once it is written; every line of input is a node that was read."""
    nodes = range(0, dumps.world.mesh.ranks, NODE)
    written: list[Path] = []
    for first in nodes:
        if len(written) == AHEAD:
            _remove(written.pop(0))
        node = folder / f"node{first // NODE}"
        write_dumps(node, dumps, range(first, first + NODE))
        written.append(node)
        print(node, flush=True)
    sys.stdout.close()
    for node in written:
        _remove(node)


def _remove(node: Path) -> None:
    """Once it was read."""
    sys.stdin.readline()
    shutil.rmtree(node)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--kind", type=FaultKind, default=FaultKind.SKIP)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at-once", action="store_true", help="write all dumps into the one folder, and leave them there"
    )
    args = parser.parse_args()
    dumps = Dumps(one_world(args.ranks, args.kind, args.seed))
    if args.at_once:
        write_dumps(args.folder, dumps, range(args.ranks))
    else:
        feed(args.folder, dumps)


if __name__ == "__main__":
    main()
