"""`forkpoint doctor`: is this node and this job's environment fit to run, and to leave evidence?"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command, did_you_mean, split_names
from forkpoint.cli.output import check_outputs, needing_extra, terminal_width, write_file
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.doctor.report import DoctorCheck, DoctorReport

_DESCRIPTION = """\
Check this node and the settings of a job: recorder, timeouts, variables that
nothing reads, ranks, GPUs, network, memory, disks, clock. Each check says ok,
bad with its fix, or skipped with the reason; skipped is not ok. Nothing is
changed, no process is touched, and programs that do not answer are abandoned.

Settings are those of this shell, or of a running process with --job.

  forkpoint doctor --only gpu-ecc,xids          a few checks
  forkpoint doctor --json > $(hostname).json    on each node, then
  forkpoint doctor --compare *.json             which node differs

exit codes (as Node Problem Detector reads them):
  0  nothing bad; with --compare, no difference
  1  something is bad; with --compare, nodes differ
  2  wrong usage, or a check gave no result
  3  a report given to --compare or --since cannot be read
"""

_TWO = 2


def run(args: Namespace) -> int:
    _check_usage(args)
    if args.list:
        _print_list(as_json=args.json)
        return 0
    if args.compare:
        return _compare(args.compare, as_json=args.json)
    report = _examine(args)
    if args.prometheus is not None:
        _write_metrics(args.prometheus, report)
    _print_report(report, as_json=args.json)
    if args.since is not None:
        _print_changes(args.since, report)
    return report.exit_code


def _check_usage(args: Namespace) -> None:
    modes = [name for name in ("list", "compare", "inject", "only") if getattr(args, name)]
    if len(modes) > 1:
        raise UsageError(f"--{modes[0]} and --{modes[1]} exclude each other")
    if args.compare and len(args.compare) < _TWO:
        raise UsageError("--compare needs the reports of at least two nodes")
    if args.since is not None and (args.json or args.compare):
        raise UsageError("--since prints below the text report; it excludes --json and --compare")
    check_outputs(args, "prometheus")


def _examine(args: Namespace) -> "DoctorReport":
    from forkpoint.doctor import examine
    from forkpoint.doctor.broken import examine_injected
    from forkpoint.doctor.checks import CHECKS
    from forkpoint.doctor.live import live_system

    system = live_system(args.job)
    if args.inject is not None:
        return examine_injected(system, *_named([args.inject], CHECKS))
    return examine(system, _named(split_names(args.only), CHECKS) if args.only else CHECKS)


def _named(names: Sequence[str], checks: "Sequence[DoctorCheck]") -> "list[DoctorCheck]":
    by_name = {check.name: check for check in checks}
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name)
            raise UsageError(
                f"no check is named {name!r}; {f'{hint} See' if hint else 'see'} `forkpoint doctor --list`"
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def _print_report(report: "DoctorReport", *, as_json: bool) -> None:
    from forkpoint.doctor.report import render_json
    from forkpoint.doctor.text import render_text

    print(render_json(report) if as_json else render_text(report, terminal_width()))


def _print_changes(since: str, report: "DoctorReport") -> None:
    from forkpoint.doctor.report import changes, read_document
    from forkpoint.doctor.text import render_changes

    print(render_changes(changes(read_document(since), report), since))


def _compare(paths: Sequence[str], *, as_json: bool) -> int:
    from forkpoint.doctor.report import compare, read_document, render_comparison_json
    from forkpoint.doctor.text import render_comparison

    comparison = compare([read_document(path) for path in paths])
    print(render_comparison_json(comparison) if as_json else render_comparison(comparison))
    return 1 if comparison.differences else 0


def _print_list(*, as_json: bool) -> None:
    from forkpoint.doctor.checks import CHECKS
    from forkpoint.doctor.report import render_checks_json
    from forkpoint.doctor.text import render_list

    print(render_checks_json(CHECKS) if as_json else render_list(CHECKS))


def _write_metrics(path: str, report: "DoctorReport") -> None:
    with needing_extra("--prometheus", "watch"):
        from forkpoint.doctor.text import render_metrics
    write_file(path, [render_metrics(report)])


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--job", type=int, metavar="PID", help="judge the settings of this process: a rank, or the launcher of ranks"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only these checks, separated by commas"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and what each looks at")
    parser.add_argument(
        "--inject", metavar="NAME", help="simulate one fault to show that its check can fail; nothing is touched"
    )
    parser.add_argument("--compare", nargs="+", metavar="FILE", help="compare the JSON reports of several nodes")
    parser.add_argument("--since", metavar="FILE", help="compare with an earlier JSON report of this node")
    parser.add_argument(
        "--prometheus", metavar="FILE", help="also write metrics for node_exporter's textfile collector"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (schema forkpoint.doctor/1)")


COMMAND = Command(
    "doctor", "check this node and a job's settings, before or while it runs", _DESCRIPTION, _add_arguments, run
)
