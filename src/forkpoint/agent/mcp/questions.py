"""What a peer may ask, in one list: the tools of the agent, and what stands in for the workflow's last phases.

`tools/` answer with facts; those get their ids here. The rest is made of the same parts as the workflow of `agent`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from forkpoint.agent.hypothesis import Hypothesis
from forkpoint.agent.mcp.answers import (
    Answer,
    FactsOut,
    HypothesisOut,
    RemediesOut,
    RemedyOut,
    VerdictOut,
    answer_with_facts,
)
from forkpoint.agent.mcp.cleaned import report_as_text, verdict_as_json, verdict_in_short
from forkpoint.agent.mcp.desk import Opened
from forkpoint.agent.mcp.remedy import CheckPatch, OfferRemedy, check_patch, offer_remedy
from forkpoint.agent.mcp.submit import submit
from forkpoint.agent.tool import Tool
from forkpoint.agent.tools import TOOLS
from forkpoint.agent.wire import Wire, schema_of


class Nothing(Wire):
    """No arguments."""


class OpenCase(Wire):
    paths: list[str]
    source: list[str]


@dataclass(frozen=True, slots=True)
class Question:
    name: str
    description: str
    arguments: type[Wire]
    output: dict[str, Any]
    """JSON schema of the answer's data."""
    answer: Callable[[Opened, Any], Answer]

    @property
    def input(self) -> dict[str, Any]:
        return schema_of(self.arguments, ())


def questions(*, may_open: bool) -> tuple[Question, ...]:
    """`may_open`: the case was not named when the server was started."""
    return (*((_OPEN_CASE,) if may_open else ()), _VERDICT, *map(_from_tool, TOOLS), _SUBMIT, _OFFER, _CHECK)


def _from_tool(tool: Tool) -> Question:
    def answer(opened: Opened, arguments: Wire) -> Answer:
        return answer_with_facts(opened.ledger.show(tool.answer(opened.case, arguments)))

    return Question(tool.name, tool.description, tool.arguments, _schema(FactsOut), answer)


def _verdict(opened: Opened, _: Nothing) -> Answer:
    return Answer(report_as_text(opened.case), verdict_as_json(opened.case))


def _in_short(opened: Opened, _: OpenCase) -> Answer:
    return Answer.of(verdict_in_short(opened.case))


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _verdict_schema() -> dict[str, Any]:
    return json.loads(files("forkpoint.report").joinpath("verdict.schema.json").read_text(encoding="utf-8"))


_OPEN_CASE = Question(
    name="open_case",
    description="Read the evidence of a job: `paths` are folders or files with flight recorder dumps, logs, stacks, in any "
    "mixture; `source` are folders of the program that ran (may be empty). Paths are relative to the root of this server. "
    "Nothing in them is run. Large cases take a while: call `verdict` again when told so. Ids of an earlier case end.",
    arguments=OpenCase,
    output=_schema(VerdictOut),
    answer=_in_short,
)
_VERDICT = Question(
    name="verdict",
    description="The verdict of forkpoint on this case: cause, suspects, divergence, sites, evidence, coverage, probes, "
    "fixes. It was made without a model and does not change.",
    arguments=Nothing,
    output=_verdict_schema(),
    answer=_verdict,
)
_SUBMIT = Question(
    name="submit_hypothesis",
    description="Hand in what you think happened, as typed claims. Each is checked against evidence and source again and "
    "comes back supported, contradicted or unverifiable, with why. `evidence` takes ids of facts that tools have shown you "
    "(F1, F2, ...); `opinion` is kept apart and decides nothing. The verdict does not change.",
    arguments=Hypothesis,
    output=_schema(HypothesisOut),
    answer=submit,
)
_OFFER = Question(
    name="offer_remedy",
    description="Probes and fixes as patches that forkpoint makes: for the places of the verdict (file and line null), or for a "
    "line that you name, where something communicates or a decision about it falls. Text for a person; nothing is applied.",
    arguments=OfferRemedy,
    output=_schema(RemediesOut),
    answer=offer_remedy,
)
_CHECK = Question(
    name="check_patch",
    description="Check a patch of your own: a unified diff that applies to the source of this case as it was read, parses, and "
    "stays inside the functions you name. It comes back marked as not trusted, with notes, or is refused with why. Nothing is "
    "applied or run.",
    arguments=CheckPatch,
    output=_schema(RemedyOut),
    answer=check_patch,
)
