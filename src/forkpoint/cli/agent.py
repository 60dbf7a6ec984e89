"""`forkpoint agent`: the verdict, and a model's explanation that the engine checks."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command, add_quiet_argument, add_source_argument, add_width_argument
from forkpoint.cli.output import (
    Progress,
    check_outputs,
    exit_code,
    needing_extra,
    print_verdict,
    say,
    say_problems,
    terminal_width,
    write_file,
)
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.agent.hypothesis import Explanation
    from forkpoint.agent.model import Budget
    from forkpoint.agent.talk import Hear
    from forkpoint.brief.case import Case

_DESCRIPTION = """\
Diagnose, then let a model examine the case: it sees facts with ids, asks
through read-only tools, and hands in claims. The engine checks every claim and
says which are supported, contradicted or unverifiable. The verdict is made
first, without the model, and the model cannot change it.

MODEL is PROVIDER:NAME:
  openai-compatible:NAME  with --endpoint URL: vLLM, Ollama, llama.cpp
  openai:NAME             OPENAI_API_KEY
  openai-chat:NAME        the same, chat completions
  anthropic:NAME          ANTHROPIC_API_KEY
There is no default: without --model nothing leaves this machine. What is sent
is redacted: secrets are masked; hosts, addresses and users are renamed. Proxy
settings of the environment are ignored.

exit codes are those of diagnose; the model does not change them
"""


def run(args: Namespace) -> int:
    if (args.model is None) == (args.replay is None):
        raise UsageError("give --model PROVIDER:NAME, or --replay FILE to replay a transcript")
    need_extra()
    return _replay(args) if args.replay is not None else _explain(args)


def _explain(args: Namespace) -> int:
    from forkpoint.agent.model import Account
    from forkpoint.agent.providers import Style, connect
    from forkpoint.agent.talk import Talk
    from forkpoint.agent.transcript import TranscriptFile, places
    from forkpoint.agent.workflow import explain

    if not args.paths:
        raise UsageError("give the evidence: forkpoint agent PATH --model ...")
    _check_transcript(args)
    check_outputs(args, "md")
    budget = budget_of(args)
    model = connect(args.model, args.endpoint, args.key_variable, Style(args.style))
    case = _open(args.paths, args.source, args)
    with TranscriptFile(args.transcript or os.devnull) as transcript:
        transcript.write(places(args.paths, args.source, case.redactor))
        talk = Talk(case, model, Account(budget), transcript, _hear(quiet=args.quiet))
        code = _finish(case, explain(talk), args)
    if transcript.problem is not None:  # reported last, after the answer
        raise UsageError(transcript.problem)
    return code


def _replay(args: Namespace) -> int:
    from forkpoint.agent.model import Account
    from forkpoint.agent.talk import Talk
    from forkpoint.agent.transcript import Replayed, read_transcript
    from forkpoint.agent.workflow import explain

    given = next((name for name in _NOT_IN_A_REPLAY if getattr(args, name) is not None), None)
    if given is not None:
        raise UsageError(f"{_option(given)} has no effect with --replay: the transcript sets it")
    if args.source and not args.paths:
        raise UsageError("--source needs PATH: give both, or neither to take both from the transcript")
    replayed = Replayed(read_transcript(args.replay), args.replay)
    paths, source = (args.paths, args.source) if args.paths else replayed.places()
    case = _open(paths, source, args)
    talk = Talk(case, replayed, Account(replayed.budget), replayed, _hear(quiet=args.quiet), replayed.clock)
    explanation = explain(talk)
    replayed.finish()
    return _finish(case, explanation, args)


def _check_transcript(args: Namespace) -> None:
    if args.transcript is None:
        return
    check_outputs(args, "transcript")
    place = Path(args.transcript).resolve()
    if any(Path(path).resolve() in (place, *place.parents) for path in args.paths):
        raise UsageError(f"--transcript {args.transcript}: is inside the evidence; choose another path")


def _open(paths: list[str], source: list[str], args: Namespace) -> "Case":
    """Prints the verdict before a model is asked."""
    from forkpoint.brief.case import open_case

    with Progress(sys.stderr, quiet=args.quiet, in_bytes=True) as progress:
        case = open_case(paths, source, progress)
    if not args.quiet:
        say_problems(case.incident.capture.problems)
    if not args.json:
        print_verdict(case.verdict, as_json=False, width=args.width)
        sys.stdout.flush()
    return case


def _finish(case: "Case", explanation: "Explanation", args: Namespace) -> int:
    from forkpoint.agent.report import render_explanation, render_explanation_json

    if args.md is not None:
        from forkpoint.agent.report import render_forward

        write_file(args.md, [render_forward(case, explanation)])
    if args.json:
        print(render_explanation_json(case, explanation))
    else:
        print(f"\n{render_explanation(case, explanation, args.width or terminal_width())}")
    if explanation.ended is not None and not args.quiet:
        say(f"the model's part ended early: {explanation.ended}")
    return exit_code(case.verdict)


def _hear(*, quiet: bool) -> "Hear":
    """Prints phases to standard error, and on a terminal also the model's text as it arrives."""
    from forkpoint.agent.talk import Hear

    def phase(name: str) -> None:
        print(f"{new_line}forkpoint: {name} ...", file=sys.stderr, flush=True)

    def text(piece: str) -> None:
        print(escape(piece.replace("\n", " ")), end="", file=sys.stderr, flush=True)

    def nothing(_: str) -> None:
        pass

    looks_on = sys.stderr.isatty() and not quiet
    new_line = "\n" if looks_on else ""
    return Hear(nothing if quiet else phase, text if looks_on else nothing)


def budget_of(args: Namespace) -> "Budget":
    from forkpoint.agent.model import Budget

    given = {name: getattr(args, name) for name in _BUDGETS}
    try:
        return Budget(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise UsageError(f"--max-...: {error}") from error


def need_extra() -> None:
    with needing_extra("forkpoint agent", "agent"):
        import pydantic as _  # noqa: F401 - whether it is installed


_BUDGETS = {
    "requests": (int, "N", "requests to the model (24)"),
    "tool_calls": (int, "N", "questions it may ask (16)"),
    "tokens": (int, "N", "tokens sent and received (200000)"),
    "cost_usd": (float, "USD", "cost, if the provider's price is known (no limit)"),
    "seconds": (float, "S", "seconds of waiting for the model (300)"),
    "facts": (int, "N", "facts shown at a time (30); fewer for a model with a small context"),
}


def _option(name: str) -> str:
    return f"--{'max-' if name in _BUDGETS else ''}{name.replace('_', '-')}"


_NOT_IN_A_REPLAY = ("endpoint", "key_variable", "transcript", *_BUDGETS)


def add_model_arguments(parser: ArgumentParser) -> None:
    """The model and its budget."""
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="the model; no default")
    parser.add_argument(
        "--endpoint", metavar="URL", help="of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
    )
    parser.add_argument("--key-variable", metavar="NAME", help="environment variable with the API key")
    parser.add_argument(
        "--style",
        choices=("tools", "json"),
        default="tools",
        help="json: for models without tool calls (default: tools)",
    )
    for name, (kind, metavar, what) in _BUDGETS.items():
        parser.add_argument(_option(name), dest=name, type=kind, metavar=metavar, help=what)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="evidence: files or folders, as for diagnose")
    add_source_argument(parser)
    add_model_arguments(parser)
    parser.add_argument(
        "--transcript", metavar="FILE", help="write the conversation, redacted, as hash-chained JSON lines"
    )
    parser.add_argument("--replay", metavar="FILE", help="replay a transcript without a model, and check every step")
    parser.add_argument("--md", metavar="FILE", help="also write a page to forward, as Markdown")
    parser.add_argument("--json", action="store_true", help="print verdict and explanation as JSON (forkpoint.agent/1)")
    add_width_argument(parser)
    add_quiet_argument(parser)


COMMAND = Command(
    name="agent",
    help="let a model explain a verdict; every claim is checked",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
