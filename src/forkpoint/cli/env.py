"""`forkpoint env`: prints the settings that make a job leave evidence, and checks a job script for them."""

import os
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command
from forkpoint.cli.output import say
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.knowledge.recorder import Release

_DESCRIPTION = """\
Print what to set before a job, for this release of torch and this launcher,
each line with its reason. Only what torch does not do by itself is printed.

--check reads a job script (shell, batch script, YAML, Dockerfile or Python) and
names what is missing, wrong, misspelt or too late, by line. It is read as text:
nothing in it is run, so values that it computes or includes are unknown.

  forkpoint env --launcher srun --folder /shared/dumps >> job.sh
  forkpoint env --check job.sh --torch 2.9

exit codes:
  0  printed; with --check, nothing found
  1  with --check, something found
  2  wrong usage
  3  the script cannot be read
"""

_LAUNCHERS = ("torchrun", "srun", "kubernetes", "ray")
_FOLDER = "/shared/dumps"
_PATH = r"(?:/[\w.+@=-]+)+/?"
_SCRIPT_LIMIT = 1 << 20


def run(args: Namespace) -> int:
    release = _release(args.torch)
    if args.check is not None:
        return _check(args.check, release, as_json=args.json)
    _print_settings(args, release)
    return 0


def _release(version: str | None) -> "Release | None":
    from forkpoint.doctor.live import find_package, folders_of_environment
    from forkpoint.knowledge.recorder import parse_release

    if version is not None:
        release = parse_release(version)
        if release is None:
            raise UsageError(f"--torch {version}: is not a version; write it like 2.13")
        return release
    torch = find_package(folders_of_environment(os.environ), "torch")
    return parse_release(torch.version) if torch else None


def _print_settings(args: Namespace, release: "Release | None") -> None:
    from forkpoint.knowledge.recorder import render_json, wanted
    from forkpoint.knowledge.variables import LAUNCHERS

    if not re.fullmatch(_PATH, args.folder):
        raise UsageError(f"--folder {args.folder}: give an absolute path of plain characters; it goes into scripts")
    launcher = next(launcher for launcher in LAUNCHERS if launcher.name == args.launcher)
    settings = (*wanted(release), *launcher.adds(release))
    if args.json:
        print(render_json(launcher.name, release, args.folder, settings))
        return
    print(f"# {f'torch {release}' if release else 'any torch: none was found here'}, {launcher.name}")
    print(launcher.render(settings, args.folder))


def _check(path: str, release: "Release | None", *, as_json: bool) -> int:
    from forkpoint.doctor.script import check_script, render_json, render_text

    problems = check_script(_read(path), release)
    if release is None:
        say("no torch was found, so not everything can be checked; give --torch VERSION")
    print(render_json(path, release, problems) if as_json else render_text(path, problems))
    return 1 if problems else 0


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_SCRIPT_LIMIT + 1)
    except OSError as error:
        raise UnreadableInput(f"{escape(path)}: cannot be read: {error.strerror}") from error
    if len(data) > _SCRIPT_LIMIT:
        raise UnreadableInput(f"{escape(path)}: too long for a job script")
    return data.decode(errors="replace")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--launcher", choices=_LAUNCHERS, default=_LAUNCHERS[0], help="who starts the ranks (torchrun)")
    parser.add_argument("--torch", metavar="VERSION", help="the job's torch, such as 2.9; otherwise the one found here")
    parser.add_argument(
        "--folder", metavar="DIR", default=_FOLDER, help=f"where each job gets a folder for its dumps ({_FOLDER})"
    )
    parser.add_argument("--check", metavar="SCRIPT", help="read a job script and list what is missing")
    parser.add_argument(
        "--json", action="store_true", help="print JSON (schema forkpoint.env/1; with --check, forkpoint.env-check/1)"
    )


COMMAND = Command("env", "print what to set before a job, or check a job script", _DESCRIPTION, _add_arguments, run)
