import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import forkpoint
import verdicts
from cases import ROOT
from forkpoint.cli import main
from forkpoint.cli.output import exit_code, print_verdict
from forkpoint.model.verdict import Cause
from looping import for_each

DEMO = Path(forkpoint.__file__).parent / "demo"
SCHEMA = Draft202012Validator(json.loads((files("forkpoint.report") / "verdict.schema.json").read_text()))


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@for_each("cause", Cause)
def test_the_exit_code_says_what_was_found(cause: Cause) -> None:
    expected = {Cause.HEALTHY: 0, Cause.INCONCLUSIVE: 4}.get(cause, 1)

    assert exit_code(replace(verdicts.FOUND, cause=cause)) == expected


def test_a_piped_report_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(verdicts.FOUND, as_json=False, width=None)

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.startswith("Rank 0 ran `compute()` at train.py:15")


def test_a_terminal_gets_colour_unless_no_color_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_verdict(verdicts.FOUND, as_json=False, width=80)
    coloured = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_verdict(verdicts.FOUND, as_json=False, width=80)
    plain = capsys.readouterr().out

    assert "\x1b[1;31m" in coloured
    assert "\x1b" not in plain


def test_the_width_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(verdicts.crowded(1000), as_json=False, width=60)

    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 60


def test_the_demo_is_diagnosed_and_says_where_it_lies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("Rank 0 ran `compute()` at train.py:16")
    assert "suspect: rank 0 of 4" in out
    assert f"forkpoint diagnose {DEMO}" in err


def test_the_json_of_a_real_incident_validates_and_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(DEMO), "--json"]) == 1

    document = json.loads(capsys.readouterr().out)
    SCHEMA.validate(document)
    assert (document["cause"], document["suspects"], document["divergence"]["seq"]) == ("divergent-path", [0], 16)


def test_a_path_that_does_not_exist_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path / "missing")]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "missing" in err


def test_input_of_no_known_kind_exits_3_and_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "noise_rank_0").write_bytes(bytes(range(256)) * 8)

    assert main(["diagnose", str(tmp_path)]) == 3

    out, err = capsys.readouterr()
    assert out == ""
    assert "noise_rank_0" in err


def test_escapes_in_file_names_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "\x1b[2J\u202e_rank_0").write_bytes(bytes(range(256)))

    assert main(["diagnose", str(tmp_path)]) == 3

    assert "\x1b" not in capsys.readouterr().err


def test_one_bad_file_does_not_stop_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "nccl_trace_rank_9"
    bad.write_bytes(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.")

    assert main(["diagnose", str(DEMO), str(bad)]) == 1

    out, err = capsys.readouterr()
    assert "suspect: rank 0" in out
    assert "nccl_trace_rank_9" in err


def test_source_beside_the_evidence_shows_the_fork_without_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(ROOT / "cases/0013/capture")])

    out, err = capsys.readouterr()
    assert "--> prepared.py:19 in Prepared.get" in out
    assert "cases/0013/source (its lines match the recorded frames; --no-source turns this off)" in err


def test_no_source_does_without(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(ROOT / "cases/0013/capture"), "--no-source"])

    out, err = capsys.readouterr()
    assert "-->" not in out
    assert "its lines match" not in err


def test_quiet_is_the_sentence_alone(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "-q", "--no-source", "--no-verdict-line", str(ROOT / "cases/0008/capture")])

    told = "Rank 2 called barrier at train.py:56 while the other 3 called all_reduce at train.py:39.\n"
    assert capsys.readouterr() == (told, "")


def test_what_may_not_leave_the_house_is_left_out_of_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(ROOT / "cases/0013/capture"), "--md", "--no-embed-source"])
    bare = capsys.readouterr().out
    main(["diagnose", str(ROOT / "cases/0013/capture"), "--md"])
    whole = capsys.readouterr().out

    assert "```" not in bare
    assert "self.rank != 0:" not in bare
    assert "if self.rank != 0:" in whole
