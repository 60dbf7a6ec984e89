"""The schema that ships in the package says exactly what `--json` prints."""

import json
from enum import StrEnum
from importlib.resources import files
from typing import Any

from hypothesis import given
from jsonschema import Draft202012Validator

import verdicts
from forkpoint.model.incident import Role
from forkpoint.model.op import OpState
from forkpoint.model.verdict import Action, Cause, Symptom, Verdict
from forkpoint.report.json_report import SCHEMA, render_json
from looping import for_each

DOCUMENT = json.loads((files("forkpoint.report") / "verdict.schema.json").read_text())
VALIDATOR = Draft202012Validator(DOCUMENT)
ADDED_LATER = frozenset({"timeline", "set_aside", "hypotheses", "headline"})
"""Fields that documents of earlier releases do not have."""


def test_the_schema_is_itself_valid_and_versioned() -> None:
    Draft202012Validator.check_schema(DOCUMENT)

    assert DOCUMENT["properties"]["schema"]["const"] == SCHEMA


@for_each("verdict", [verdicts.FOUND, verdicts.HEALTHY, verdicts.INCONCLUSIVE, verdicts.crowded(64)])
def test_verdicts_validate(verdict: Verdict) -> None:
    VALIDATOR.validate(json.loads(render_json(verdict)))


@given(verdicts.VERDICTS)
def test_any_verdict_validates(verdict: Verdict) -> None:
    VALIDATOR.validate(json.loads(render_json(verdict)))


def _objects(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for item in node for found in _objects(item)]
    if isinstance(node, dict):
        return [node, *(found for item in node.values() for found in _objects(item))]
    return []


def test_every_object_of_a_verdict_accepts_further_fields_and_misses_none() -> None:
    document = json.loads(render_json(verdicts.FOUND))
    for node in _objects(document):
        node["added_later"] = 1
        assert VALIDATOR.is_valid(document), node
        del node["added_later"]
        for key in list(node):
            value = node.pop(key)
            assert VALIDATOR.is_valid(document) is (key in ADDED_LATER), key
            node[key] = value

    assert VALIDATOR.is_valid(document)


@for_each(
    "wrong",
    [
        {"schema": "forkpoint.verdict/2"},
        {"cause": "network"},
        {"confidence": 1.5},
        {"suspects": [-1]},
        {"suspects": "0"},
        {"summary": None},
        {"symptom": "hang"},
        {"action": "reboot"},
    ],
)
def test_a_wrong_field_fails(wrong: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(json.loads(render_json(verdicts.FOUND)) | wrong)


@for_each(
    ("listed", "model"),
    [
        (DOCUMENT["$defs"]["cause"]["enum"], Cause),
        (DOCUMENT["properties"]["symptom"]["enum"][:-1], Symptom),
        (DOCUMENT["properties"]["action"]["enum"], Action),
        (DOCUMENT["$defs"]["cohort"]["properties"]["role"]["enum"], Role),
        (DOCUMENT["$defs"]["cohort"]["properties"]["state"]["enum"][:-1], OpState),
    ],
)
def test_closed_sets_are_the_same_in_schema_and_model(listed: list[str], model: type[StrEnum]) -> None:
    assert listed == [member.value for member in model]
