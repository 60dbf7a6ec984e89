"""`forkpoint demo`: a real recorded incident, diagnosed."""

import sys
from argparse import Namespace
from pathlib import Path

import forkpoint
from forkpoint.cli.diagnose import add_output_arguments, diagnose_paths
from forkpoint.cli.options import Command
from forkpoint.report.escape import escape

_DESCRIPTION = """\
Diagnose an incident that comes with the package: four NCCL ranks on a real
GPU, stopped by the watchdog. Dumps, logs and stacks are as PyTorch wrote them.
"""


def run(args: Namespace) -> int:
    package = Path(forkpoint.__file__).parent
    folder, source = str(package / "demo"), str(package / "demo_source")
    diagnose_paths([folder], args, [source])
    if not args.quiet:
        sys.stdout.flush()
        print(f"\nThe evidence is in {escape(folder)}. To diagnose it again:", file=sys.stderr)
        print(f"    forkpoint diagnose {escape(folder)} --source {escape(source)}", file=sys.stderr)
        if args.html:
            print(f"\nThe same report for a browser: {escape(args.html)}", file=sys.stderr)
    return 0


COMMAND = Command(
    "demo", "diagnose a recorded incident that comes with the package", _DESCRIPTION, add_output_arguments, run
)
