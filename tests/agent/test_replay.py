"""A transcript played again: the same result to the byte, or the first line that differs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agent.claim_cases import recorded
from agent.endpoints import KEY, MODELS
from agent.scripted_server import Silent, Status, both, calls, says, writes
from agent.walks import (
    CAPTURE,
    ISSUED,
    PATCH,
    QUIET,
    SOURCE,
    UNKNOWN,
    WRONG,
    choose,
    go_on,
    reading,
    right,
    says_in_turn,
    submit,
    walk,
    walk_in_process,
)
from cases import CASES, read_case
from forkpoint.agent.hypothesis import Explanation
from forkpoint.agent.model import Account, Budget
from forkpoint.agent.providers import Style
from forkpoint.agent.report import render_explanation, render_explanation_json
from forkpoint.agent.talk import Talk
from forkpoint.agent.transcript import Replayed, TranscriptFile, TranscriptRecord, places, read_transcript
from forkpoint.agent.workflow import explain
from forkpoint.brief.case import Case, open_case
from forkpoint.errors import InputError, UsageError
from forkpoint.redact import Redactor
from looping import for_each

MESSY = [
    both(says("I look.\n\x1b[2J"), calls("similar", cause=None), calls("similar", cause=None), calls("table", x=1)),
    writes("explain", "{bad"),
    go_on("F1", "F777", note="\x1b[2J<b>\ud800 /home/carol/x"),
    says(""),
    *reading()[:3],
    submit(ISSUED, WRONG, {**UNKNOWN, "evidence": ["F999"]}, confidence=7.0),
    submit(WRONG),
    calls("offer_at", file="metrics.py", line=15),
    choose("X1@metrics.py:15", "P9", patch=PATCH, functions=["log_progress"]),
]
SCRIPTS = {
    "right": (right(), Budget(requests=60)),
    "messy": (MESSY, Budget()),
    "requests": (right(), Budget(requests=4)),
    "tokens": (right(), Budget(tokens=500)),
    "seconds": ([*reading(), Silent()], Budget(seconds=0.6)),
    "dead": ([go_on(), Status(500), Status(500)], Budget()),
    "over": ([], Budget()),
}


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("MINE", KEY)


def play(path: Path, case: Case) -> Explanation:
    replayed = Replayed(read_transcript(str(path)), str(path))
    found = explain(Talk(case, replayed, Account(replayed.budget), replayed, QUIET, replayed.clock))
    replayed.finish()
    return found


def fresh() -> Case:
    """Redactors remember whom they met: a replay begins with one that has met nobody."""
    return replace(recorded("0001"), redactor=Redactor.of(read_case("0001")))


def printed(case: Case, found: Explanation) -> tuple[str, str]:
    return render_explanation(case, found, 80), render_explanation_json(case, found)


@for_each("name", SCRIPTS)
def test_a_replay_gives_the_same_text_and_the_same_json(name, tmp_path):
    script, budget = SCRIPTS[name]
    case = fresh()
    with TranscriptFile(str(tmp_path / "t.jsonl")) as transcript:
        transcript.write(places(case.paths, case.source, case.redactor))
        live = printed(case, walk(script, budget=budget, transcript=transcript, case=case).explanation)

    again = fresh()
    assert printed(again, play(tmp_path / "t.jsonl", again)) == live


@for_each("style", list(Style))
@for_each("spec", [MODELS[0], MODELS[3]])
def test_a_replay_is_the_same_whichever_wire_it_came_over(spec, style, tmp_path):
    case = fresh()
    with TranscriptFile(str(tmp_path / "t.jsonl")) as transcript:
        transcript.write(places(case.paths, case.source, case.redactor))
        live = printed(case, walk(right(), spec, style, transcript=transcript, case=case).explanation)

    again = fresh()
    assert printed(again, play(tmp_path / "t.jsonl", again)) == live


# ------------------------------------------------------------------------------------------------------ another case


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("transcript") / "good.jsonl"
    case = fresh()
    with TranscriptFile(str(path)) as transcript:
        transcript.write(places(case.paths, case.source, case.redactor))
        walk_in_process(says_in_turn(right()), case=case, transcript=transcript)
    return path


def test_another_case_is_named_by_the_first_line_that_differs(good):
    with pytest.raises(
        InputError, match=r"line 2 \(start\) differs from what the engine says now: the evidence or the source"
    ):
        play(good, recorded("0002"))


def test_a_source_that_was_changed_is_found(good, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "source")
    train = tmp_path / "source" / "train.py"
    train.write_text(
        train.read_text().replace("def log_progress(step, metric):", "def log_progress(step, metric, x=1):")
    )

    with pytest.raises(InputError, match=r"line \d+ \(\w+\) differs from what the engine says now"):
        play(good, open_case([CAPTURE], [str(tmp_path / "source")]))


def test_a_case_that_was_moved_is_the_same_case(good, tmp_path):
    shutil.copytree(CASES / "0001", tmp_path / "home" / "dave" / "elsewhere")
    moved = tmp_path / "home" / "dave" / "elsewhere"

    case = open_case([str(moved / "capture")], [str(moved / "source")])
    found = play(good, case)

    assert render_explanation(case, found, 80) == render_explanation(fresh(), play(good, fresh()), 80)


def test_a_transcript_of_another_version_says_so(good, tmp_path):
    records = list(read_transcript(str(good)))
    records[1] = TranscriptRecord("start", {**records[1].body, "forkpoint": "99.1"})

    with pytest.raises(InputError, match=r"or the version: 99\.1 wrote it"):
        play(chained(tmp_path, records), fresh())


def test_a_transcript_that_was_cut_after_a_line_is_found_wherever(good, tmp_path):
    records = read_transcript(str(good))
    for end in range(2, len(records)):
        with pytest.raises(InputError, match="ends before the engine does; it is truncated"):
            play(chained(tmp_path, records[:end]), fresh_cached())


def test_a_transcript_that_goes_on_is_found(good, tmp_path):
    records = read_transcript(str(good))

    with pytest.raises(InputError, match=r"line \d+ \(end\) is left over after the engine has finished"):
        play(chained(tmp_path, [*records, records[-1]]), fresh())


# ----------------------------------------------------------------------------------------------- forged, but chained


def fresh_cached() -> Case:
    """Scripts that name nobody leave a redactor as it was."""
    return recorded("0001")


def chained(folder: Path, records) -> Path:
    """Whoever forges a transcript makes the whole chain anew."""
    path = folder / "forged.jsonl"
    with TranscriptFile(str(path)) as transcript:
        for record in records:
            transcript.write(record)
    return path


def changed(good: Path, folder: Path, kind: str, **fields: object) -> Path:
    """The first record of a kind with other fields; None takes one away."""
    records = list(read_transcript(str(good)))
    at = next(n for n, record in enumerate(records) if record.kind == kind)
    body = {**records[at].body, **fields}
    records[at] = TranscriptRecord(kind, {name: value for name, value in body.items() if value is not None})
    return chained(folder, records)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("case", {"paths": 7}),
        ("case", {"paths": None}),
        ("case", {"source": [1, 2]}),
        ("start", {"budget": None}),
        ("start", {"budget": []}),
        ("start", {"budget": {"requests": "many"}}),
        ("start", {"budget": {"requests": -3}}),
        ("start", {"budget": {"facts": 0}}),
        ("start", {"budget": {"seconds": -1.0}}),
        ("start", {"model": None}),
        ("start", {"model": ["x"]}),
        ("start", {"forkpoint": {}}),
        ("reply", {"reply": None}),
        ("reply", {"reply": []}),
        ("reply", {"reply": {"text": "", "calls": 5, "usage": {}}}),
        ("reply", {"reply": {"text": "", "calls": [{"id": 1}], "usage": {}}}),
        ("reply", {"reply": {"text": "", "calls": [], "usage": {"input_tokens": "x"}}}),
        ("reply", {"seconds": None}),
        ("reply", {"seconds": "soon"}),
        ("reply", {"seconds": [1]}),
    ],
    ids=str,
)
def test_a_forged_record_is_one_clear_error(good, tmp_path, kind, fields):
    with pytest.raises(InputError, match=rf"line \d+ \({kind}\) is not a valid record of forkpoint agent"):
        play(changed(good, tmp_path, kind, **fields), fresh_cached())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 5000])
def test_numbers_that_are_none_are_no_record(good, tmp_path, number):
    path = changed(good, tmp_path, "reply", seconds=0.25)
    path.write_text(path.read_text().replace('"seconds": 0.25', f'"seconds": {number}'))

    with pytest.raises(InputError, match="is not a transcript record"):
        read_transcript(str(path))


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("start", {"schema": "forkpoint.transcript/9"}, "not a transcript of forkpoint agent"),
        ("start", {"verdict": "0" * 64}, r"line 2 \(start\) differs from what the engine says now"),
        ("start", {"budget": {"requests": 24, "more": 1}}, r"line 2 \(start\) differs from what the engine says now"),
        ("phase", {"name": "\x1b[2J"}, r"line 3 \(phase\) differs from what the engine says now"),
        ("ask", {"instructions": "Obey."}, r"line 4 \(ask\) differs from what the engine says now"),
        ("checked", {"claims": []}, r"line \d+ \(checked\) differs from what the engine says now"),
        ("end", {"ended": "never"}, r"line \d+ \(end\) differs from what the engine says now"),
    ],
    ids=str,
)
def test_what_the_engine_never_said_is_found(good, tmp_path, kind, fields, told):
    with pytest.raises(InputError, match=told):
        play(changed(good, tmp_path, kind, **fields), fresh_cached())


def test_a_record_in_the_place_of_a_reply_is_found(good, tmp_path):
    records = list(read_transcript(str(good)))
    records[4] = TranscriptRecord("phase", {"name": "symptom"})

    with pytest.raises(InputError, match=r"line 5 \(phase\) is not a reply, but the engine asks the model now"):
        play(chained(tmp_path, records), fresh_cached())


@for_each("records", [[], [TranscriptRecord("end", {})], [TranscriptRecord("start", {}), TranscriptRecord("case", {})]])
def test_what_does_not_begin_like_a_transcript_is_none(records, tmp_path):
    with pytest.raises(InputError, match="not a transcript of forkpoint agent"):
        Replayed(records, "t.jsonl")


# ---------------------------------------------------------------------------------------------------- where it lies


def test_the_case_is_found_where_it_was(good):
    assert Replayed(read_transcript(str(good)), "t.jsonl").places() == ([CAPTURE], [SOURCE])


def test_a_case_that_is_no_longer_there_has_to_be_named(good, tmp_path):
    path = changed(good, tmp_path, "case", paths=["no/such/folder"])

    with pytest.raises(UsageError, match="no/such/folder does not exist: give them, as in forkpoint agent PATH"):
        Replayed(read_transcript(str(path)), "t.jsonl").places()


def test_a_case_whose_place_was_not_told_has_to_be_named(good, tmp_path):
    path = changed(good, tmp_path, "case", paths=None, source=None)

    with pytest.raises(UsageError, match="it does not contain the paths of the case: give them"):
        Replayed(read_transcript(str(path)), "t.jsonl").places()


def test_a_replay_lets_hear_what_the_model_said(good):
    replayed = Replayed(read_transcript(str(good)), "t.jsonl")
    records = read_transcript(str(good))
    for record in records[1:4]:
        replayed.write(record)
    heard: list[str] = []

    reply = replayed.ask("", (), (), 1.0, heard.append)

    assert heard == [reply.text]
    assert json.loads(reply.calls[0].arguments)["evidence"] == ["F1"]
