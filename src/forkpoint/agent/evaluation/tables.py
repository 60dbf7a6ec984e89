"""Runs and totals -> a table for people, JSON (schema forkpoint.eval/1) for programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.table import Table

from forkpoint import __version__
from forkpoint.agent.evaluation.run import Plan, Run
from forkpoint.agent.evaluation.totals import Beside, Share, Side, Totals
from forkpoint.report.escape import escape

SCHEMA = "forkpoint.eval/1"
_WORDS = {True: "right", False: "-", None: ""}


def render_results_json(plan: Plan, runs: Sequence[Run], totals: Totals) -> str:
    told = {
        "schema": SCHEMA,
        "forkpoint": __version__,
        "model": escape(plan.model.name),
        "budget": asdict(plan.budget),
        "totals": {**asdict(totals), "grounded": totals.grounded},
        "runs": [_run(run) for run in runs],
    }
    return json.dumps(told, indent=2, allow_nan=False)


def _run(run: Run) -> dict[str, object]:
    told = asdict(run)
    told["claims"]["turned_away"] = run.claims.turned_away
    told["ended"] = None if run.ended is None else escape(run.ended)
    told["refused"] = [escape(why) for why in run.refused]
    return told


def tell_run(run: Run) -> str:
    """One line while the next one runs."""
    claims = run.claims
    borne_out = f"{claims.supported} of {claims.handed_in} claims supported" if claims.handed_in else "no claims"
    ended = f"; ended early: {escape(run.ended)}" if run.ended is not None else ""
    return f"{borne_out}, {run.requests} requests, {run.seconds:.0f} s{ended}"


def runs_table(runs: Sequence[Run]) -> Table:
    """`right`, `-`, or nothing where the truth does not say."""
    table = Table(box=None, pad_edge=False)
    for column in ("case", "fork point", "engine", "suspects", "engine", "site", "engine"):
        table.add_column(column)
    for column in ("claims", "supported", "contradicted", "unverifiable", "requests", "tokens", "s"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(*_row(run))
    return table


def _row(run: Run) -> Iterator[str]:
    yield run.case if run.number == 1 else f"{run.case} ({run.number})"
    for mine, engines in (
        (run.model.earliest, run.engine.earliest),
        (run.model.suspects, run.engine.suspects),
        (run.model.site, run.engine.site),
    ):
        yield _WORDS[mine]
        yield _WORDS[engines]
    claims = run.claims
    tokens = run.usage.input_tokens + run.usage.output_tokens
    for number in (claims.handed_in, claims.supported, claims.contradicted, claims.unverifiable, run.requests, tokens):
        yield str(number)
    yield f"{run.seconds:.0f}"


def totals_table(totals: Totals, model: str) -> Table:
    """What the engine says alone, what the model says, and who is right where the other is not."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "engine alone", escape(model), "model alone right", "engine alone right"):
        table.add_column(column)
    rows = (
        ("fork point right", totals.engine.earliest, totals.model.earliest, totals.earliest),
        ("suspects exact", totals.engine.suspects, totals.model.suspects, totals.suspects),
        ("site line right", totals.engine.site, totals.model.site, totals.site),
    )
    for name, engine, mine, beside in rows:
        table.add_row(name, _share(engine), _share(mine), *_beside(beside))
    table.add_row("suspects, precision", _precision(totals.engine), _precision(totals.model), "", "")
    return table


def tell_totals(totals: Totals) -> str:
    grounded = "" if totals.grounded is None else f" ({totals.grounded:.0%})"
    cost = "" if totals.cost_usd is None else f", ${totals.cost_usd:.4f}"
    each = totals.seconds / totals.runs if totals.runs else 0.0
    checked = f"{totals.contradicted} contradicted, {totals.unverifiable} unverifiable"
    tokens = f"{totals.input_tokens:,} tokens in, {totals.output_tokens:,} out{cost}"
    lines = (
        f"claims: {totals.claims} handed in, {totals.supported} supported{grounded}, {checked}",
        f"not checked, as they cite what was never shown: {totals.turned_away}",
        f"runs: {totals.runs}, of which {totals.abstained} abstained and {totals.ended_early} ended early",
        f"verdict to the byte as without a model: {totals.verdicts_intact} of {totals.runs}",
        f"{totals.requests} requests, {totals.tool_calls} tool calls, {tokens}",
        f"{totals.seconds:.0f} s for the model ({each:.1f} s a run), {totals.engine_seconds:.1f} s for the engine",
    )
    return "\n".join(lines)


def _share(share: Share) -> str:
    return "" if share.rate is None else f"{share.right} of {share.asked} ({share.rate:.0%})"


def _beside(beside: Beside) -> tuple[str, str]:
    return str(beside.model_alone), str(beside.engine_alone)


def _precision(side: Side) -> str:
    return "" if side.precision is None else f"{side.precision:.2f}"
