"""The verdict beside another answer: what speaks for each, and where checked facts contradict the verdict."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.asking import ask
from agent.claim_cases import recorded, with_text
from forkpoint.agent.case import Ledger
from forkpoint.agent.hypothesis import BothAnswers, Explanation, ModelHypothesis, check_claims, compare
from forkpoint.agent.model import Usage
from forkpoint.agent.report import render_forward
from forkpoint.agent.tools.around import changes_since
from forkpoint.brief.case import Case, QuestionRefused
from forkpoint.model.verdict import Cause
from forkpoint.report.json_report import render_json

ABSENT = "0003"
"""Rank 0 does not reach seq 23 of the default group, and ranks 1-3 wait there."""


def compared(case: Case, hypothesis: ModelHypothesis) -> BothAnswers:
    before = render_json(case.verdict)
    found = compare(case, hypothesis, check_claims(case, Ledger(), hypothesis).claims)
    assert render_json(case.verdict) == before
    return found


def issued(rank: int, seq: int) -> dict[str, object]:
    return {"kind": "issued", "ranks": [rank], "group": "default_pg", "seq": seq, "op": "_all_gather_base"}


def missing(rank: int, seq: int) -> dict[str, object]:
    return {"kind": "missing", "ranks": [rank], "group": "default_pg", "seq": seq}


def test_who_agrees_with_a_verdict_that_explains_hears_of_no_dissent() -> None:
    case = recorded(ABSENT)
    found = compared(case, ModelHypothesis(suspects=[0], claims=[missing(0, 23)]))  # type: ignore[list-item]

    assert (found.model, found.dissent) == (None, ())
    assert any(one.startswith("replay: with its repair") for one in found.verdict.speaks_for)
    assert found.verdict.replayed


def test_a_verdict_that_facts_contradict_is_said_to_be_contradicted() -> None:
    """As if the engine had accused a rank that is there, and the right one were the model's answer."""
    case = recorded(ABSENT)
    wrong = replace(case, verdict=replace(case.verdict, suspects=(1,), hypotheses=()))
    told = ModelHypothesis.model_validate(
        {"cause": "host-stall", "suspects": [0], "claims": [issued(1, 23), missing(0, 23)]}
    )

    found = compared(wrong, told)

    assert found.model is not None
    assert any("its repair would not have let the job go on" in one for one in found.verdict.speaks_against)
    assert any(
        "rank 1, which it says never made the call, issued the call" in one for one in found.verdict.speaks_against
    )
    assert any(
        "rank 0, which it does not suspect, did not make the call either" in one for one in found.verdict.speaks_against
    )
    assert any(one.startswith("Checked facts contradict the verdict") for one in found.dissent)
    assert any("prefer " in one or "contradict the verdict" in one for one in found.dissent)


def test_another_answer_that_checks_contradict_is_told_so() -> None:
    found = compared(recorded(ABSENT), ModelHypothesis.model_validate({"suspects": [3], "claims": [missing(3, 23)]}))

    assert found.model is not None
    assert found.model.speaks_against
    assert "checks contradict that" in found.dissent[-1]


def test_an_answer_to_a_verdict_that_does_not_decide_stands_beside_it() -> None:
    case = recorded("0061")
    first = case.verdict.hypotheses[1]
    told = ModelHypothesis(cause=first.cause, suspects=[*(first.suspects or first.sides[0])])

    found = compared(case, told)

    assert case.verdict.cause is Cause.INCONCLUSIVE
    assert found.model is not None
    assert found.dissent


def test_what_can_be_forwarded_has_every_part_and_no_markup_of_a_model() -> None:
    case = recorded(ABSENT)
    told = ModelHypothesis.model_validate(
        {
            "suspects": [0],
            "opinion": "Rank 0 left. <script>alert(1)</script> [click](http://x)",
            "why": "Its loader was shorter.",
            "refuted_by": "A dump in which rank 0 issued seq 23.",
            "claims": [missing(0, 23)],
        }
    )
    checked = check_claims(case, Ledger(), told).claims
    page = render_forward(
        case, Explanation("test:model", told, checked, compare(case, told, checked), (), (), None, 1, 0, Usage())
    )

    for head in ("What happened", "Why it differed", "Checked facts", "What would prove it wrong"):
        assert f"\n## {head}\n" in page
    assert "`<script>alert(1)</script>" in page, "as code"
    assert "> Its loader was shorter." in page


# Source beyond the stack: how the lines came about, and what changed.


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True)


def test_history_and_changes_ask_a_repository_and_run_nothing_of_it(tmp_path: Path) -> None:
    program = "def step(x):\n    if x:\n        dist.all_reduce(x)\n"
    case = with_text(tmp_path, program)
    with pytest.raises(QuestionRefused):
        ask(case, "history", file="train.py", line=2)
    git(tmp_path, "init")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-m", "First \x1b[2J step")
    canary = tmp_path / "canary"
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.sshCommand", "gpg.program"):
        git(tmp_path, "config", key, f"touch {canary}")
    (tmp_path / ".gitattributes").write_text("*.py diff=evil\n")
    git(tmp_path, "config", "diff.evil.textconv", f"touch {canary};cat")
    changed = with_text(tmp_path, program.replace("if x:", "if x.any():"))

    (told,) = ask(changed, "history", file="train.py", line=2)
    assert told.says.endswith("First \\x1b[2J step")
    (hunk,) = changes_since(changed, "HEAD")
    assert (hunk.where, hunk.says) == ("train.py:2", "changed in def step(x):: - if x: / + if x.any():")
    for refused in ("--output=x", "HEAD..main", "no-such", "-p"):
        with pytest.raises(QuestionRefused):
            list(changes_since(changed, refused))
    assert not canary.exists()


def test_a_hang_that_no_log_shows_excludes_no_answer() -> None:
    told = ModelHypothesis.model_validate({"cause": "divergent-path", "suspects": [0, 2], "earliest_group": "mesh_tp"})
    found = compared(recorded("0113"), told)

    assert found.model is not None
    assert found.model.speaks_against == ()
