"""Whatever a model says, about whatever case: the verdict stays, nothing is raised, and a replay is the same."""

import json
from importlib.resources import files

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import forkpoint
from agent.claim_cases import recorded
from agent.walks import QUIET, InProcess, walk_in_process
from forkpoint.agent.model import Account, Budget, Call, ModelFailed, Reply, Usage
from forkpoint.agent.report import render_explanation, render_explanation_json
from forkpoint.agent.talk import Talk
from forkpoint.agent.transcript import Replayed, TranscriptFile, TranscriptRecord, read_transcript
from forkpoint.agent.workflow import explain
from forkpoint.brief.case import Case, open_case
from forkpoint.report.json_report import render_json
from looping import for_each

CASES = ["0001", "0005", "0006", "0016", "0040", "0077", "0100", "0135"]
VALIDATOR = Draft202012Validator(json.loads((files("forkpoint.agent") / "agent.schema.json").read_text()))

TEXT = st.text(max_size=20) | st.sampled_from(
    ["train.py", "default_pg", "rank", "F1", "F2", "all_reduce", "../x", "X1"]
)
SCALARS = st.none() | st.booleans() | st.integers(-1, 40) | st.integers() | st.floats() | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
USAGE = st.builds(Usage, st.integers(-5, 10**6), st.integers(-5, 10**6), st.none() | st.floats())


VALUES = {"integer": st.sampled_from([0, 1, 3, 15, 16]) | st.integers(), "number": st.floats(), "string": TEXT}


def fitting(schema: dict, defined: dict) -> st.SearchStrategy:
    """Mostly what a schema asks for: what does not fit is turned away at the door, and proves little."""
    match schema:
        case {"$ref": reference}:
            found = fitting(defined[reference.rpartition("/")[2]], defined)
        case {"const": value}:
            found = st.just(value)
        case {"enum": values}:
            found = st.sampled_from(values)
        case {"anyOf": options} | {"oneOf": options}:
            found = st.one_of([fitting(option, defined) for option in options])
        case {"properties": fields}:
            found = st.fixed_dictionaries({name: fitting(field, defined) for name, field in fields.items()})
        case {"items": item}:
            found = st.lists(fitting(item, defined), max_size=3)
        case _:
            found = VALUES.get(schema["type"], st.none())
    return found


def said(data: st.DataObject, offers) -> Reply:
    if data.draw(st.integers(0, 30)) == 0:
        raise ModelFailed("the script says so")
    made = []
    for number in range(data.draw(st.integers(0, 6))):
        offer = data.draw(st.sampled_from(offers))
        shape = offer.schema if data.draw(st.integers(0, 4)) else None
        given_in = data.draw(JSON if shape is None else fitting(shape, shape.get("$defs", {})))
        written = json.dumps(given_in) if data.draw(st.integers(0, 9)) else data.draw(TEXT)
        name = offer.name if data.draw(st.integers(0, 9)) else data.draw(TEXT)
        made.append(Call(f"c{number}", name, written))
    return Reply(data.draw(TEXT), tuple(made), data.draw(USAGE))


def reopened(case: Case) -> Case:
    return open_case(case.paths, case.source)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any")


@settings(  # each example is a whole walk and its replay
    max_examples=10, phases=[Phase.explicit, Phase.generate]
)
@given(st.data())
def test_no_model_changes_a_verdict_or_makes_the_engine_fail(folder, data):
    case = reopened(recorded(data.draw(st.sampled_from(CASES))))
    before = render_json(case.verdict)
    budget = Budget(facts=data.draw(st.integers(1, 30)), requests=data.draw(st.integers(1, 40)))
    path = str(folder / "t.jsonl")

    with TranscriptFile(path) as transcript:
        transcript.write(TranscriptRecord("case", {}))
        model = InProcess(lambda messages, offers: said(data, offers))
        found = walk_in_process(model, case, budget, transcript)

    text, written = render_explanation(case, found, 80), render_explanation_json(case, found)
    assert written.endswith(f'"verdict": {before}\n}}')
    assert render_json(case.verdict) == before
    VALIDATOR.validate(json.loads(written, parse_constant=pytest.fail))
    assert [line for line in text.splitlines() if not line.replace("\t", "").isprintable()] == []
    again = reopened(case)
    replayed = Replayed(read_transcript(path), path)
    same = explain(Talk(again, replayed, Account(replayed.budget), replayed, QUIET, replayed.clock))
    replayed.finish()
    assert (render_explanation(again, same, 80), render_explanation_json(again, same)) == (text, written)


@for_each("number", CASES)
def test_the_cases_are_judged_as_diagnose_judges_them(number):
    case = recorded(number)

    assert render_json(case.verdict) == render_json(forkpoint.diagnose(forkpoint.read(case.paths), case.source))
