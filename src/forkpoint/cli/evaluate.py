"""`forkpoint eval`: measures a model or an external agent on cases with a known truth."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.agent import add_model_arguments, budget_of, need_extra
from forkpoint.cli.options import Command, add_quiet_argument, count, minutes
from forkpoint.cli.output import say, write_file
from forkpoint.errors import ForkpointError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from forkpoint.agent.evaluation import Plan, Run
    from forkpoint.agent.evaluation.arms import ArmRun, ArmsPlan

_DESCRIPTION = """\
With --agent, let an external agent find the cause of recorded incidents that
the engine alone does not solve, in three arms: the engine alone, the agent
alone, the agent with forkpoint's MCP server. Each case is a new run of the
command in a folder with the evidence, the source and the task, which is also
its standard input; it writes answer.json. In the command, {prompt}, {dir} and
{mcp} (a file of MCP servers) are filled in. --out keeps its output, its
requests and its answers.

With --model, let a model explain recorded cases with a known truth, and count:
fork point, suspects and source line right, claims that the evidence supports or
contradicts, abstentions, requests, tokens, cost and time. The engine alone is
scored beside it, to show what the model adds.

CASES is a folder of cases, each with case.toml, capture/ and source/, as in
the repository and as `forkpoint lab run --out` writes them. The model sees
neither the name of a case nor the story of it or of another run of its fault.

It stops if the endpoint does not reply in three runs in a row.

exit codes:
  0  all runs done, every verdict the same as without a model
  1  a verdict differs: a bug in forkpoint
  2  wrong usage
  3  the endpoint does not reply, or a case cannot be read
"""
_RESULTS = "results.json"
_COLUMNS = 150
"""Width of the table when standard output is not a terminal."""


def run(args: Namespace) -> int:
    if args.agent is not None:
        return _run_arms(args)
    if args.model is None:
        raise UsageError("give --model PROVIDER:NAME, or --agent COMMAND; there is no default")
    need_extra()
    from forkpoint.agent.evaluation import evaluate, read_known

    cases = read_known(args.cases, args.only)
    plan = _plan(args)
    runs: list[Run] = []
    failed: ForkpointError | KeyboardInterrupt | None = None
    try:
        for done in evaluate(cases, plan):
            runs.append(done)
            _tell(done, len(runs), len(cases) * plan.repeat, quiet=args.quiet)
    except (ForkpointError, KeyboardInterrupt) as error:  # still print the runs that are done
        failed = error
    _print(plan, runs, args)
    if failed is not None:
        raise failed
    return 0 if all(done.verdict_intact for done in runs) else 1


def _run_arms(args: Namespace) -> int:
    from rich.console import Console

    from forkpoint.agent.evaluation import read_known
    from forkpoint.agent.evaluation.arms import ArmRun, ArmsPlan, EvaluationArm, is_solved, run_arms

    if args.model is not None:
        raise UsageError("--agent and --model exclude each other")
    if args.out is None:
        raise UsageError("--agent needs --out DIR, for the transcripts")
    _make_folder(args.out)
    known = read_known(args.cases, args.only)
    cases = [case for case in known if args.only or args.every or not is_solved(case)]
    if not cases:
        raise UsageError("the engine alone solves all of these; choose some with --only, or use --every")
    plan = ArmsPlan(args.agent, tuple(map(EvaluationArm, args.arms)), args.minutes, args.repeat, args.out)
    runs: list[ArmRun] = []
    try:
        for done in run_arms(cases, plan):
            runs.append(done)
            if not args.quiet:
                told = "right" if done.is_right else done.ended or "wrong"
                say(f"{len(runs)}/{len(cases) * len(plan.arms) * plan.repeat} {done.case} {done.arm}: {told}")
    finally:
        _print_arms(plan, runs, Console(highlight=False, markup=False), as_json=args.json)
    return 0


def _print_arms(plan: "ArmsPlan", runs: "list[ArmRun]", console: "Console", *, as_json: bool) -> None:
    """Also after an interrupt: agents cost money."""
    from forkpoint.agent.evaluation.arms import arms_table, find_misled, render_arms_json

    written = render_arms_json(plan, runs)
    write_file(str(plan.out / _RESULTS), [written, "\n"])
    if as_json:
        print(written)
        return
    console.print(arms_table(runs))
    misled = find_misled(runs)
    print(f"right alone but not with forkpoint: {', '.join(misled) or 'none'}")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be created: {error.strerror}; choose another path") from error


def _plan(args: Namespace) -> "Plan":
    from forkpoint.agent.evaluation import Plan
    from forkpoint.agent.providers import Style, connect

    if args.out is not None:
        _make_folder(args.out)
    model = connect(args.model, args.endpoint, args.key_variable, Style(args.style))
    return Plan(model, budget_of(args), args.repeat, args.out)


def _tell(done: "Run", number: int, planned: int, *, quiet: bool) -> None:
    from forkpoint.agent.evaluation.run import tell_run

    if not quiet:
        say(f"{number}/{planned} {done.case}: {tell_run(done)}")


def _print(plan: "Plan", runs: "list[Run]", args: Namespace) -> None:
    from rich.console import Console

    from forkpoint.agent.evaluation import total
    from forkpoint.agent.evaluation.run import render_results_json, runs_table, tell_totals, totals_table

    totals = total(runs)
    as_json = render_results_json(plan, runs, totals)
    if args.out is not None:
        write_file(str(args.out / _RESULTS), [as_json, "\n"])
    if args.json:
        print(as_json)
        return
    console = Console(width=None if sys.stdout.isatty() else _COLUMNS, highlight=False, markup=False)
    console.print(runs_table(runs))
    console.print()
    console.print(totals_table(totals, plan.model.name))
    print(f"\n{tell_totals(totals)}")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "cases", nargs="?", type=Path, default=Path("cases"), metavar="CASES", help="the folder (default: cases)"
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="only these cases")
    parser.add_argument("--repeat", type=count, default=1, metavar="N", help="run each case N times (default: 1)")
    arms = parser.add_argument_group("an external agent", "docs/agent_evaluation.md")
    arms.add_argument("--agent", metavar="COMMAND", help="the command that starts it, in quotes")
    arms.add_argument(
        "--arms", nargs="+", choices=("engine", "alone", "with"), default=("engine", "alone", "with"), metavar="ARM",
        help="engine, alone, with (default: all)",
    )  # fmt: skip
    arms.add_argument("--every", action="store_true", help="also cases that the engine alone solves")
    arms.add_argument("--minutes", type=minutes, default=15.0, metavar="M", help="for each run (default: 15)")
    add_model_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep transcripts and results.json here")
    parser.add_argument(
        "--json", action="store_true", help="print JSON (schema forkpoint.eval/1; with --agent, forkpoint.agent-eval/1)"
    )
    add_quiet_argument(parser, "no progress on standard error")


COMMAND = Command(
    name="eval",
    help="measure a model or an agent on cases with a known truth",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
