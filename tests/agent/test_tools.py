"""Tools answer from the case alone: with facts that are clean and few, or by saying what is possible."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.asking import ask, says, tool_named
from agent.claim_cases import all_recorded, recorded
from cases import CASES, load_cases
from forkpoint.agent.case import schema_of
from forkpoint.agent.tools import TOOLS
from forkpoint.brief.case import MAX_CHARACTERS, MAX_FACTS, Case, Fact, QuestionRefused, open_case
from looping import for_each, one_in

# ----------------------------------------------------------------------------------------------------------- every tool


def questions(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Some of everything that can be asked of a case, sensible or not."""
    timeline = case.incident.timeline
    for name in (
        "evidence",
        "progress",
        "table",
        "log_lines",
        "similar",
        "read_source",
        "why",
        "files",
        "waits",
        "threads",
        "channels",
        "lint",
    ):
        yield name, {}
    for group in timeline.groups[:3]:
        seqs = {track.last_seq for rank in group.traces if (track := group.track(rank))}
        for seq in {0, -1, 10**30, *seqs}:
            yield "table", {"group": group.group.name, "seq": seq, "around": 10**9}
    for channel in timeline.channels[:3]:
        for number in (None, 1, 10**30):
            yield "channels", {"source": channel.source, "destination": channel.destination, "number": number}
    for rank in (0, 1, -1, 10**30):
        yield "threads", {"rank": rank}
        yield "stack_diff", {"rank": rank, "other": 2}
        yield "log_lines", {"rank": rank}
    for file in ("train.py", "../train.py", "\ud800", "x" * 10_000):
        yield "read_source", {"file": file, "line": 3, "around": 10**9}
        yield "taint", {"file": file, "line": 20}
        yield "lint", {"file": file, "line": 20}
        yield "history", {"file": file, "line": 10**30}
        yield "callers", {"file": file, "function": "main"}
        yield "log_lines", {"file": file, "line": 1}
    yield "log_lines", {"contains": "error"}
    yield "log_lines", {"since": "00:00:00", "until": "23:59:59"}
    yield "explain", {"query": case.verdict.cause}


@one_in(10)
def test_every_tool_answers_or_refuses_on_every_case_within_its_caps(share: int) -> None:
    answered: set[str] = set()
    for number, case in all_recorded(share):
        for name, given in questions(case):
            tool = tool_named(name)
            assert tool is not None
            fields = {field: given.get(field) for field in tool.arguments.model_fields}
            # As a model that cannot be held to a schema would, past pydantic's own checks.
            asked = tool.arguments.model_construct(**fields)
            try:
                facts = tool.answer(case, asked)
            except QuestionRefused:
                continue
            answered.add(name)
            assert 0 < len(facts) <= MAX_FACTS, (number, name, given)
            assert all(len(f.says) <= MAX_CHARACTERS and len(f.where) <= MAX_CHARACTERS for f in facts)
            assert all(f.says.isprintable() and f.where.isprintable() for f in facts)

    assert answered == {tool.name for tool in TOOLS} - {"history"}  # which needs a repository


def test_every_field_of_every_tool_is_required_and_told_apart_by_name() -> None:
    names = [tool.name for tool in TOOLS]

    assert len(names) == len(set(names)) == 17
    for tool in TOOLS:
        schema = schema_of(tool.arguments, ())
        assert sorted(schema["required"]) == sorted(schema["properties"]), tool.name
        assert schema["additionalProperties"] is False
        assert tool.description.endswith(".")


def test_a_tool_that_does_not_exist_is_none() -> None:
    assert tool_named("shell") is None


def test_answers_do_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    names = sorted(path.name for path in (CASES / "0005" / "capture").iterdir())
    for folder in ("given", "turned"):
        shutil.copytree(CASES / "0005" / "capture", tmp_path / folder / "capture")
    source = [str(CASES / "0005" / "source")]
    one = open_case([str(tmp_path / "given" / "capture" / name) for name in names], source)
    other = open_case([str(tmp_path / "given" / "capture" / name) for name in reversed(names)], source)

    for name, given in questions(one):
        assert _told(one, name, given) == _told(other, name, given), (name, given)


def _told(case: Case, name: str, given: dict[str, Any]) -> Sequence[Fact] | str:
    tool = tool_named(name)
    assert tool is not None
    try:
        return tool.answer(
            case, tool.arguments.model_construct(**{f: given.get(f) for f in tool.arguments.model_fields})
        )
    except QuestionRefused as refused:
        return str(refused)


# ------------------------------------------------------------------------------------------------------------- evidence


def test_evidence_is_the_verdict_s_by_the_ids_of_its_json() -> None:
    case = recorded("0001")

    (third,) = ask(case, "evidence", id="E3")

    assert third.says == "E3, rank 0: all_reduce [[2]] seq 16: entering, from metrics.py:15 compute"
    assert third.where.endswith("nccl_trace_rank_0 entry 15")
    assert len(ask(case, "evidence")) == len(case.verdict.evidence)


@for_each("number", ["E0", "E99", "e1", "F1", ""])
def test_evidence_that_does_not_exist_is_refused(number: str) -> None:
    with pytest.raises(QuestionRefused, match="E1 to E4"):
        ask(recorded("0001"), "evidence", id=number)


# -------------------------------------------------------------------------------------------------------------- explain


def test_explain_knows_every_cause_that_cases_have() -> None:
    for cause in sorted({cause for case in load_cases() for cause in case.causes}):
        assert says(recorded("0001"), "explain", query=cause)[0].startswith(f"{cause}: ")


def test_explain_recognises_a_line_and_cuts_no_sentence_off() -> None:
    line = says(recorded("0001"), "log_lines", file="log_rank_1.txt", line=13, around=0)[0]

    told = says(recorded("0001"), "explain", query=line)

    assert told
    assert not any(piece.endswith("…") for piece in told)


def test_explain_refuses_what_nobody_knows() -> None:
    with pytest.raises(QuestionRefused, match="the knowledge base has nothing on this"):
        ask(recorded("0001"), "explain", query="qwertzuiop")
