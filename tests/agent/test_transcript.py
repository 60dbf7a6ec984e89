"""A transcript holds what was said, redacted, in a chain in which every byte counts."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.claim_cases import recorded
from agent.injections.planted import SECRET
from agent.scripted_server import calls
from agent.walks import CAPTURE, SOURCE, choose, go_on, reading, right, says_in_turn, submit, walk, walk_in_process
from forkpoint.agent.transcript import MAX_BYTES, TranscriptFile, TranscriptRecord, places, read_transcript
from forkpoint.brief.case import open_case
from forkpoint.errors import InputError, UnreadableInput, UsageError
from forkpoint.redact import Redactor
from looping import for_each

KINDS = ["case", "start", "phase", "ask", "reply", "failed", "checked", "end"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("transcripts")


@cache
def written(folder: Path) -> bytes:
    """One good run."""
    path = folder / "good.jsonl"
    with TranscriptFile(str(path)) as transcript:
        transcript.write(places([CAPTURE], [SOURCE], recorded("0001").redactor))
        walk_in_process(says_in_turn(right()), transcript=transcript)
    return path.read_bytes()


def read(folder: Path, data: bytes) -> tuple[TranscriptRecord, ...]:
    path = folder / "changed.jsonl"
    path.write_bytes(data)
    return read_transcript(str(path))


# ---------------------------------------------------------------------------------------------------------- the chain


def test_what_was_written_is_read(folder):
    records = read(folder, written(folder))

    assert [record.kind for record in records[:5]] == ["case", "start", "phase", "ask", "reply"]
    assert (records[-1].kind, records[-1].body["requests"]) == ("end", len(right()))
    assert {record.kind for record in records} == set(KINDS) - {"failed"}
    assert sum(record.kind == "ask" for record in records) == len(right())


def test_every_line_is_json_that_other_programs_read(folder):
    lines = [json.loads(line) for line in written(folder).decode("ascii").splitlines()]

    assert all(set(line) == {"hash", "record"} for line in lines)
    asked = next(line["record"] for line in lines if line["record"]["kind"] == "ask")
    assert set(asked) == {"kind", "instructions", "messages", "offers"}


@given(st.data())
def test_any_byte_that_was_changed_is_found(folder, data):
    good = written(folder)
    at = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255))
    assume(byte != good[at])

    with pytest.raises(InputError, match="line "):
        read(folder, good[:at] + bytes([byte]) + good[at + 1 :])


@given(st.data())
def test_any_line_that_was_dropped_doubled_or_moved_is_found(folder, data):
    lines = written(folder).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 2))
    other = data.draw(st.integers(at + 1, len(lines) - 1))
    dropped = [*lines[:at], *lines[at + 1 :]]
    doubled = [*lines[: at + 1], *lines[at:]]
    moved = [*lines]
    moved[at], moved[other] = moved[other], moved[at]

    for changed in (dropped, doubled, moved):
        with pytest.raises(InputError, match="does not follow the one before it: the file was changed"):
            read(folder, b"".join(changed))


@given(st.data())
def test_any_line_that_was_put_in_is_found(folder, data):
    lines = written(folder).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    more = data.draw(st.sampled_from([b"\n", b"{}\n", b"null\n", lines[0], lines[-1], b'{"kind": "end"}\n']))
    assume(at > 0 or more != lines[0])

    with pytest.raises(InputError, match=f"line {at + 1} "):
        read(folder, b"".join([*lines[:at], more, *lines[at:]]))


def test_a_file_that_was_cut_inside_a_line_is_found(folder):
    with pytest.raises(InputError, match="is not a complete transcript record"):
        read(folder, written(folder)[:-5])


@for_each(
    "data",
    [
        b"hello\n",
        b"[]\n",
        b'{"hash": "' + b"0" * 64 + b'", "record": {"kind": "end"}}\n',
        b'{"hash": "' + b"0" * 64 + b'", "record": ' + b"[" * 100_000 + b"}\n",
        b'{"hash": "' + b"0" * 64 + b'", "record": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n",
        b"x" * 5_000_000 + b"\n",
        b"\xff\xfe\n",
        b"\0" * 100 + b"\n",
    ],
    ids=["text", "list", "forged", "deep", "deep and closed", "long", "not ASCII", "zeros"],
)
def test_what_is_no_transcript_is_said_in_one_line(folder, data):
    with pytest.raises(InputError, match="line 1 ") as error:
        read(folder, data)

    assert len(str(error.value)) < 300


def test_a_file_too_large_is_not_read(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)

    with pytest.raises(InputError, match="too large for a transcript"):
        read_transcript(str(path))


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_transcript(str(tmp_path / "none"))
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_transcript(str(tmp_path))


def test_a_place_that_cannot_be_written_is_said_before_anything_is_asked(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        TranscriptFile(str(tmp_path / "none" / "x.jsonl"))


def test_a_full_disk_takes_nothing_of_the_explanation_away():
    with TranscriptFile("/dev/full") as transcript:
        found = walk_in_process(says_in_turn(right()), transcript=transcript)

    assert found.ended is None
    assert transcript.problem == "/dev/full: cannot be written: No space left on device; the transcript is cut off"


def test_odd_text_of_a_model_can_be_written_and_read_again(folder):
    odd = go_on(note="\ud800 \x7f \x1b[2J \u2028\x85\x0c\x1c \U0001f600")
    path = folder / "odd.jsonl"
    with TranscriptFile(str(path)) as transcript:
        walk_in_process(says_in_turn([odd, *reading()[1:], submit(), choose()]), transcript=transcript)

    replies = [record for record in read_transcript(str(path)) if record.kind == "reply"]
    assert "\\u2028" in replies[0].body["reply"]["calls"][0]["arguments"]


# ---------------------------------------------------------------------------------------------------------- redaction


def test_a_secret_in_a_log_reaches_neither_the_model_nor_the_transcript(tmp_path):
    shutil.copytree(CAPTURE, tmp_path / "capture")
    log = tmp_path / "capture" / "log_rank_0.txt"
    log.write_text(f"{log.read_text()}\nlogin with HF_TOKEN={SECRET} from 10.11.12.13 by /home/alice/run.sh\n")
    case = open_case([str(tmp_path / "capture")], [SOURCE])
    nothing = {"rank": None, "line": None, "around": None, "since": None, "until": None}
    asked = calls("log_lines", file=None, contains="login with", **nothing)
    quote = {"kind": "log-says", "evidence": [], "file": "log_rank_0.txt", "line": 1, "quote": "login with HF_TOKEN"}

    with TranscriptFile(str(tmp_path / "t.jsonl")) as transcript:
        transcript.write(places(case.paths, case.source, case.redactor))
        script = [asked, *reading(), submit(quote), submit(quote), choose()]
        found = walk(script, transcript=transcript, case=case, wired=True)

    assert "login with HF_TOKEN=[masked-" in found.requests[1].last, "the line was shown"
    said = [json.dumps(request.body) for request in found.requests]
    for text in (*said, (tmp_path / "t.jsonl").read_text()):
        assert [secret for secret in (SECRET, "10.11.12.13", "alice") if secret in text] == []


def test_where_the_case_lies_is_told_unless_that_would_tell_a_name():
    redactor = Redactor()

    assert places(["runs/17"], ["src"], redactor) == TranscriptRecord("case", {"paths": ["runs/17"], "source": ["src"]})
    assert places(["/home/alice/runs/17"], [], redactor) == TranscriptRecord("case", {})
    assert places(["runs/17"], ["/home/alice/src"], redactor) == TranscriptRecord("case", {})


def test_asking_where_the_case_lies_gives_out_no_name():
    redactor = Redactor()
    places(["/home/alice/runs/17"], [], redactor)

    assert redactor.redact("/home/bob/x") == "/home/user-1/x"
