"""What `forkpoint summarise` does on every node, for one node after another: `python -m bench.scale.nodes PARTS`.

Reads the folders of nodes from standard input and says on standard output when one is done. One process for all nodes:
each would start its own, at the same time as the others.
"""

import sys
from pathlib import Path

from forkpoint.evidence.summary_file import summarise


def main() -> None:
    parts = Path(sys.argv[1])
    for line in sys.stdin:
        node = Path(line.strip())
        (parts / f"{node.name}.fps").write_bytes(summarise([str(node)], node.name))
        print(node.name, flush=True)


if __name__ == "__main__":
    main()
