"""`forkpoint bundle`: one redacted archive for a ticket."""

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command, add_links_argument, add_source_argument, existing_path
from forkpoint.cli.output import Progress, check_writable
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forkpoint.gather.bundle import Bundle

_DESCRIPTION = """\
Pack evidence, verdict and report into one archive that may leave the site. Hosts,
addresses and users become pseudonyms, the same ones everywhere; keys, tokens and
passwords are masked, in logs, dumps and file names. If a log prints environment
variables, only those known to be harmless stay. Files that are neither dumps nor
text are left out. Check the archive before you send it: no pattern knows every
secret.

The pseudonyms can be looked up in FILE.map.json, which stays with you and is
never packed. `forkpoint diagnose FILE.tar.gz` reads the archive.

The finished archive is scanned once more before it gets its name. If that finds
a secret, nothing is written and you are told where: leave that file out with
--leave-out, or remove the line from it.

--verify FILE checks an archive against its manifest, file by file.

exit codes:
  0  written, listed with --dry-run, or intact with --verify
  1  --verify found a file that is missing, new or changed
  2  wrong usage
  3  nothing could be read, or the archive still held a secret and was not written
"""

_MAX_LISTED = 40


def run(args: Namespace) -> int:
    if args.verify:
        return _verify(args.verify, args.paths)
    if not args.paths:
        raise UsageError("give the evidence: forkpoint bundle PATH...")
    from forkpoint.gather.bundle import BundleOrder, make_bundle, render_contents

    out = args.out or time.strftime("forkpoint-%Y%m%d-%H%M%S.tar.gz")
    names = args.map or f"{out.removesuffix('.tar.gz').removesuffix('.tgz')}.map.json"
    if not args.dry_run:
        check_writable("-o", out)
        check_writable("--map", names)
    order = BundleOrder(
        tuple(args.paths), out, names, tuple(args.source), tuple(args.doctor), tuple(args.leave_out), args.dry_run
    )
    with Progress(sys.stderr, quiet=False, in_bytes=True) as progress:
        bundle = make_bundle(order, progress)
    if args.json:
        print(render_contents(bundle))
    else:
        _print(bundle, args, out, names)
    return 0


def _verify(archive: str, paths: "Sequence[str]") -> int:
    from forkpoint.gather.bundle_check import verify_bundle

    if paths:
        raise UsageError("--verify checks one archive and takes no PATH")
    found = verify_bundle(archive)
    for problem in found.problems:
        print(f"{escape(problem.file)}: {escape(problem.text)}")
    print(f"{found.sound} files match the manifest, {len(found.problems)} do not")
    return 1 if found.problems else 0


def _print(bundle: "Bundle", args: Namespace, out: str, names: str) -> None:
    print("would contain" if args.dry_run else "contains")
    for item in bundle.inside[:_MAX_LISTED]:
        size = "" if item.size is None else f"{item.size} bytes"
        print(f"  {escape(item.name)}  {item.kind}  {size}".rstrip())
    if len(bundle.inside) > _MAX_LISTED:
        print(f"  and {len(bundle.inside) - _MAX_LISTED} more")
    for problem in bundle.left_out[:_MAX_LISTED]:
        print(f"left out\n  {escape(problem.file)}: {escape(problem.text)}")
    told = ", ".join(f"{count} {what}" for what, count in bundle.removed) or "nothing"
    print(f"replaced in the evidence\n  {told}")
    if args.dry_run:
        print("nothing was written")
        return
    print(f"written   {escape(out)}\nmap       {escape(names)}: do not send it")
    if bundle.verdict:
        print(f"verdict   {bundle.verdict.cause}: {escape(bundle.verdict.headline)}")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file, folder or archive, as for diagnose")
    parser.add_argument("-o", "--out", metavar="FILE.tar.gz", help="the archive (default: forkpoint-DATE-TIME.tar.gz)")
    parser.add_argument("--map", metavar="FILE", help="pseudonyms and originals (default: beside the archive)")
    add_source_argument(parser)
    add_links_argument(parser)
    parser.add_argument(
        "--doctor",
        action="append",
        default=[],
        type=existing_path,
        metavar="FILE.json",
        help="a report of `forkpoint doctor --json`, one per node (repeatable)",
    )
    parser.add_argument(
        "--leave-out",
        action="append",
        default=[],
        metavar="PATTERN",
        help="do not pack files with this name or path; * and ? as in a shell (repeatable)",
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be inside and removed; write nothing")
    parser.add_argument("--verify", metavar="FILE.tar.gz", help="check whether a bundle is intact; write nothing")
    parser.add_argument("--json", action="store_true", help="print the contents as JSON (schema forkpoint.bundle/1)")


COMMAND = Command(
    "bundle", "pack evidence, verdict and report for a ticket, redacted", _DESCRIPTION, _add_arguments, run
)
