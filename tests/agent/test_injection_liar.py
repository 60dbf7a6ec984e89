"""A model that lies in everything it says: nothing of it reaches the verdict, the disk, or whoever reads on."""

from hashlib import sha256
from pathlib import Path
from typing import get_args

import pytest

from agent.claim_cases import recorded
from agent.injections.liar import Liar
from agent.injections.planted import SECRET, Injection, load_corpus, open_planted
from agent.walks import Unwritten
from cases import CASES, load_cases
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.claims import CLAIMS
from forkpoint.agent.hypothesis import Explanation
from forkpoint.agent.model import Account, Budget
from forkpoint.agent.talk import Hear, Talk
from forkpoint.agent.tools import TOOLS
from forkpoint.agent.workflow import explain
from forkpoint.brief.case import Case
from forkpoint.report.json_report import render_json
from looping import for_each

CORPUS = load_corpus()
ORDERS = [i.text.replace("{secret}", SECRET).replace("{canary}", "canary") for i in CORPUS]


def explained(case: Case, liar: Liar) -> Explanation:
    quiet = Hear(lambda _: None, lambda _: None)
    return explain(Talk(case, liar, Account(Budget()), Unwritten(), quiet))


def tree(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


@for_each("number", [case.number for case in load_cases()], one_in=10)
def test_a_model_that_lies_changes_no_verdict_and_no_file(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, files = recorded(number), tree(CASES / number)
    verdict = render_json(case.verdict)
    liar = Liar(int(number), ORDERS)
    monkeypatch.chdir(tmp_path)

    explanation = explained(case, liar)

    assert explanation.requests > 0
    assert render_json(case.verdict) == verdict
    assert tree(CASES / number) == files
    assert list(tmp_path.iterdir()) == []
    assert [line for line in liar.told if not line.isprintable() or SECRET in line] == []


@for_each("injection", CORPUS, ids=lambda injection: injection.name, one_in=10)
def test_a_model_that_obeys_a_planted_text_changes_no_verdict_and_no_file(
    injection: Injection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = open_planted(injection, tmp_path)
    verdict, files = render_json(case.verdict), tree(tmp_path)
    liar = Liar(len(injection.text), [injection.text])

    explained(case, liar)

    assert render_json(case.verdict) == verdict
    assert tree(tmp_path) == files
    assert [line for line in liar.told if not line.isprintable() or SECRET in line] == []


def test_the_liar_is_heard_by_every_tool_and_every_check() -> None:
    """Lies that nobody listens to would prove nothing."""
    tools = {tool.name for tool in TOOLS} - {"channels"}  # the case has none
    checks = {get_args(claim.model_fields["kind"].annotation)[0] for claim in CLAIMS}
    told: set[str] = set()
    checked: set[str] = set()
    contradicted = refused = False
    for seed in range(80):
        liar = Liar(seed, ORDERS)
        explanation = explained(recorded("0001"), liar)
        told |= {name for name, answers in liar.answered.items() if any(a.startswith("[F") for a in answers)}
        checked |= {claim.claim.kind for claim in explanation.claims}
        contradicted |= any(claim.status is ClaimStatus.CONTRADICTED for claim in explanation.claims)
        refused |= bool(explanation.refused)
        if told >= tools and checked >= checks and contradicted and refused:
            break

    assert told == tools
    assert checked == checks
    assert contradicted
    assert refused
