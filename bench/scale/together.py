"""What `forkpoint diagnose FOLDER` does, with the folder handed over node by node: `python -m bench.scale.together`.

Reads the folders of nodes from standard input and says on standard output when one was read, so that it can be removed:
100,000 dumps need not lie on a disk at once. The verdict goes to standard error, as JSON on one line.
"""

import json
import sys
from pathlib import Path

from forkpoint.evidence import read_stream
from forkpoint.evidence.files import open_file
from forkpoint.evidence.reading import Reading
from forkpoint.pipeline import diagnose
from forkpoint.report.json_report import render_json


def main() -> None:
    reading = Reading()
    for line in sys.stdin:
        node = Path(line.strip())
        for file in sorted(node.iterdir()):
            with open_file(str(file)) as stream:
                read_stream(stream, str(file), reading)
        print(node.name, flush=True)
    print(json.dumps(json.loads(render_json(diagnose(reading.capture())))), file=sys.stderr)


if __name__ == "__main__":
    main()
