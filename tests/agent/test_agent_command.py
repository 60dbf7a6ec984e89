"""`forkpoint agent` as it is typed: the verdict always, the model's part beside it, exit codes as of diagnose."""

import json
import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agent.scripted_server import Cut, ScriptedServer, Silent, Status, Step, both, calls, says
from agent.walks import CAPTURE, ISSUED, LOCAL, SOURCE, choose, go_on, reading, right, submit
from cases import CASES
from forkpoint.cli import main
from looping import for_each

HEAVY = ("pydantic", "pydantic_ai", "mcp", "openai", "anthropic", "httpx2")
PHASES = ["symptom", "progress", "cohorts", "earliest mismatch", "source", "hypothesis", "probe or fix"]
EARLY = "forkpoint: the model's part ended early: "


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def command(capsys):
    """Runs one and gives exit code, standard output and standard error."""

    def run(*args: str) -> tuple[int, str, str]:
        code = main([*args])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def agent(command):
    """The same against a scripted model."""

    def run(script: list[Step], *args: str, case: str = "0001") -> tuple[int, str, str]:
        paths = [str(CASES / case / "capture"), "--source", str(CASES / case / "source")]
        with ScriptedServer(script) as server:
            return command("agent", *paths, "--model", LOCAL, "--endpoint", server.url, *args)

    return run


def test_a_whole_run_in_a_process_of_its_own(command, tmp_path):
    path = str(tmp_path / "t.jsonl")
    with ScriptedServer(right()) as server:
        paths = [CAPTURE, "--source", SOURCE]
        args = ["agent", *paths, "--model", LOCAL, "--endpoint", server.url, "--transcript", path]
        done = subprocess.run([sys.executable, "-m", "forkpoint", *args], capture_output=True, text=True, check=False)
    diagnosed = command("diagnose", *paths)
    again = command("agent", "--replay", path)

    assert done.returncode == diagnosed[0] == again[0] == 1
    assert done.stdout.startswith(diagnosed[1])
    assert "\n\nWhat openai-compatible:scripted adds\n" in done.stdout
    assert done.stderr.splitlines() == [f"forkpoint: {name} ..." for name in PHASES]
    assert again[1] == done.stdout


# -------------------------------------------------------------------------------------------------- what is printed


def test_the_json_holds_what_diagnose_prints_to_the_byte(agent, command):
    code, out, _ = agent(right(), "--json")
    diagnosed = command("diagnose", CAPTURE, "--source", SOURCE, "--json")[1]

    assert code == 1
    assert f'"verdict": {diagnosed.rstrip()}\n}}\n' in out
    assert json.loads(out)["explanation"]["hypothesis"]["suspects"] == [0]


def test_a_quiet_run_says_nothing_on_standard_error(agent):
    code, out, err = agent([Status(400)], "--quiet")

    assert (code, err) == (1, "")
    assert "It ended early: " in out


def test_the_width_is_obeyed(agent):
    out = agent([*reading(), submit(ISSUED), choose()], "--width", "60", "--quiet")[1]

    assert max(map(len, out.splitlines())) <= 60


def test_files_that_cannot_be_read_are_named_as_by_diagnose(command, tmp_path):
    shutil.copytree(CAPTURE, tmp_path / "capture")
    (tmp_path / "capture" / "nccl_trace_rank_9").write_bytes(b"\x80\x02cos\nsystem\n(S'x'\ntR.")
    with ScriptedServer([Status(400)]) as server:
        paths = [str(tmp_path / "capture")]
        _, _, err = command("agent", *paths, "--model", LOCAL, "--endpoint", server.url)
    diagnosed = command("diagnose", *paths)[2]

    (problem,) = [line for line in diagnosed.splitlines() if "nccl_trace_rank_9" in line and "VERDICT" not in line]
    assert problem in err.splitlines()


def test_the_model_is_heard_as_it_speaks_where_somebody_looks_on(capsys, monkeypatch):
    ours, theirs = pty.openpty()
    spoken = both(says("Rank 0\nis \x1b[2Jelsewhere."), go_on())
    with ScriptedServer([spoken, *reading()[1:], submit(), choose()]) as server:
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            code = main(["agent", CAPTURE, "--model", LOCAL, "--endpoint", server.url])
        seen = everything_from(ours)
    os.close(ours)

    assert code == 1
    assert "forkpoint: symptom ...\r\nRank 0 is \\x1b[2Jelsewhere.\r\nforkpoint: progress ...\r\n" in seen


def everything_from(terminal: int) -> str:
    seen = b""
    with suppress(OSError):  # how a terminal says that nobody writes any more
        while piece := os.read(terminal, 4096):
            seen += piece
    return seen.decode()


# -------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ([Status(500), Status(500)], "failed (status 500)"),
        ([Cut(says("x" * 50), 3), Cut(says("x" * 50), 3)], "Streamed response ended"),
        ([Silent()], "no complete answer within 0.5 s"),
    ],
    ids=["500", "cut", "silent"],
)
def test_an_endpoint_that_fails_leaves_the_report_of_diagnose(agent, command, fault, told):
    code, out, err = agent(fault, "--max-seconds", "0.5" if isinstance(fault[0], Silent) else "600")
    diagnosed = command("diagnose", CAPTURE, "--source", SOURCE)

    assert code == diagnosed[0] == 1
    assert out.startswith(diagnosed[1])
    (line,) = [line for line in err.splitlines() if line.startswith(EARLY)]
    assert told in line


def test_a_dead_endpoint_leaves_the_report_of_diagnose(command):
    args = ["--model", LOCAL, "--endpoint", "http://127.0.0.1:9/v1"]
    code, out, err = command("agent", CAPTURE, *args)
    as_json = json.loads(command("agent", CAPTURE, *args, "--json")[1])

    assert code == 1
    assert out.startswith(command("diagnose", CAPTURE, "--no-source")[1])
    assert err.splitlines()[-1] == f"{EARLY}127.0.0.1:9: connection refused: nothing listens there"
    assert as_json["explanation"]["ended"] == "127.0.0.1:9: connection refused: nothing listens there"
    assert as_json["verdict"]["cause"] == "divergent-path"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--max-requests", "2", "the budget of 2 requests is used up"),
        ("--max-tokens", "200", "the budget of 200 tokens is used up"),
    ],
)
def test_a_budget_that_is_used_up_ends_the_models_part(agent, option, value, told):
    code, out, err = agent(right(), option, value)

    assert code == 1
    assert f"It ended early: {told}." in out
    assert err.splitlines()[-1] == f"{EARLY}{told}"


@pytest.mark.parametrize(("case", "expected"), [("0005", 1), ("0006", 0), ("0061", 4)])
def test_exit_codes_are_those_of_diagnose(agent, command, case, expected):
    verdict = command("diagnose", str(CASES / case / "capture"))[0]

    assert agent([*reading(), submit(suspects=[1]), choose()], "--quiet", case=case)[0] == verdict == expected


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "give --model PROVIDER:NAME, or --replay FILE"),
        (["x", "--model", "a:b", "--replay", "t"], "give --model PROVIDER:NAME, or --replay FILE"),
        (["--model", "openai:x"], "give the evidence"),
        (["x", "--model", "nonsense"], "write PROVIDER:NAME"),
        (["x", "--model", LOCAL], "give its endpoint"),
        (["x", "--model", "openai:x", "--key-variable", "NO_SUCH"], "NO_SUCH is not set"),
        (["x", "--model", LOCAL, "--max-seconds", "nan"], "a budget is a number above zero"),
        (["x", "--model", LOCAL, "--max-requests", "0"], "a budget is a number above zero"),
        (["x", "--model", LOCAL, "--max-facts", "many"], "invalid int value"),
        (["--replay", "t", "--transcript", "u"], "--transcript has no effect with --replay"),
        (["--replay", "t", "--max-tool-calls", "3"], "--max-tool-calls has no effect with --replay"),
        (["--replay", "t", "--source", "."], "--source needs PATH"),
        (["x", "--model", LOCAL, "--transcript", "no/such/t.jsonl"], "no/such is not a directory"),
        (["x", "--model", LOCAL, "--transcript", "x/t.jsonl"], "is not a directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_said_before_anything_is_read(command, args, told):
    code, out, err = command("agent", *args)

    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_evidence_is_not_overwritten_by_a_transcript(command, tmp_path):
    shutil.copytree(CAPTURE, tmp_path / "capture")
    log = tmp_path / "capture" / "log_rank_0.txt"
    before = log.read_bytes()
    args = ["--model", LOCAL, "--endpoint", "http://127.0.0.1:9/v1"]

    inside = command("agent", str(tmp_path / "capture"), *args, "--transcript", str(log))
    itself = command("agent", str(log), *args, "--transcript", str(log))
    beside = command("agent", str(log), *args, "--transcript", str(tmp_path / "t.jsonl"))

    assert (inside[0], itself[0]) == (2, 2)
    assert "is inside the evidence; choose another path" in inside[2]
    assert log.read_bytes() == before
    assert beside[0] != 2


def test_a_full_disk_is_said_after_the_answer(agent):
    code, out, err = agent(right(), "--transcript", "/dev/full")

    assert code == 2
    assert "What openai-compatible:scripted adds" in out
    assert "/dev/full: cannot be written: No space left on device; the transcript is cut off" in err


# ----------------------------------------------------------------------------------------------------------- replays


@for_each("script", [right(), [go_on(), Status(400)]], ids=["right", "dead"])
@for_each("form", [["--json"], []], ids=["json", "text"])
def test_a_replay_prints_the_same_without_a_model(agent, command, tmp_path, script, form):
    path = str(tmp_path / "t.jsonl")
    live = agent(script, *form, "--transcript", path)

    assert command("agent", "--replay", path, *form) == live
    assert command("agent", CAPTURE, "--source", SOURCE, "--replay", path, *form) == live


def test_a_replay_of_what_ended_by_its_budget_ends_by_it(agent, command, tmp_path):
    path = str(tmp_path / "t.jsonl")
    live = agent(right(), "--max-tokens", "250", "--transcript", path, "--json")

    assert command("agent", "--replay", path, "--json") == live
    assert "the budget of 250 tokens" in live[1]


def test_a_replay_with_another_case_names_the_first_line_that_differs(agent, command, tmp_path):
    path = str(tmp_path / "t.jsonl")
    agent(right(), "--transcript", path)

    code, _, err = command("agent", str(CASES / "0002" / "capture"), "--replay", path, "--json", "--quiet")

    assert code == 3
    told = "line 2 (start) differs from what the engine says now: the evidence or the source is different"
    assert err == f"forkpoint: {path}: {told}\n"


def test_a_changed_transcript_is_one_clear_error(agent, command, tmp_path):
    path = tmp_path / "t.jsonl"
    agent(right(), "--transcript", str(path))
    path.write_text(path.read_text().replace("Rank 0 reduces 2 values", "Rank 3 reduces 2 values"))

    code, out, err = command("agent", "--replay", str(path))

    assert (code, out) == (3, "")
    assert err.startswith(f"forkpoint: {path}: line ")
    assert err.endswith("does not follow the one before it: the file was changed\n")


@pytest.mark.parametrize("hostile", [b"", b"\x1b[2J\n", b"{" * 200_000 + b"\n", b"[1]\n" * 3, b"x" * 3_000_000])
def test_what_is_no_transcript_is_one_clear_error(command, tmp_path, hostile):
    path = tmp_path / "t.jsonl"
    path.write_bytes(hostile)

    code, out, err = command("agent", "--replay", str(path))

    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert len(err) < 300 + len(str(path))


def test_a_replay_needs_the_evidence(agent, command, tmp_path):
    shutil.copytree(CASES / "0001", tmp_path / "case")
    with ScriptedServer(right()) as server:
        args = [str(tmp_path / "case" / "capture"), "--source", str(tmp_path / "case" / "source")]
        path = str(tmp_path / "t.jsonl")
        command("agent", *args, "--model", LOCAL, "--endpoint", server.url, "--transcript", path)
    (tmp_path / "case").rename(tmp_path / "moved")

    code, _, err = command("agent", "--replay", path)
    moved = command(
        "agent", str(tmp_path / "moved/capture"), "--source", str(tmp_path / "moved/source"), "--replay", path
    )

    assert code == 2
    assert "does not exist: give them, as in forkpoint agent PATH --source DIR --replay FILE" in err
    assert moved[0] == 1


# ------------------------------------------------------------------------------------------------------------ extras


def test_other_commands_do_not_pay_for_models():
    others = [["--help"], ["agent", "--help"], ["diagnose", CAPTURE, "--source", SOURCE], ["explain", "Xid 79"]]
    code = (
        f"import sys; from forkpoint.cli import main; [main(args) for args in {others!r}];"
        f"print(*sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout
    assert done.stderr.splitlines()[-1] == ""


@for_each(
    ("missing", "told"),
    [
        ("pydantic", "forkpoint agent needs pydantic: pip install 'forkpoint[agent]'"),
        ("pydantic_ai", f"--model {LOCAL} needs pydantic_ai: pip install 'forkpoint[agent]'"),
        ("openai", f"--model {LOCAL} needs openai: pip install 'forkpoint[agent]'"),
    ],
)
def test_without_its_extra_the_command_says_what_to_install(missing, told):
    args = ["agent", CAPTURE, "--model", LOCAL, "--endpoint", "http://127.0.0.1:9/v1"]
    code = f"import sys; sys.modules[{missing!r}] = None; from forkpoint.cli import main; sys.exit(main({args!r}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"forkpoint: {told}\n")


def test_a_replay_needs_no_provider(agent, tmp_path):
    path = str(tmp_path / "t.jsonl")
    agent([*reading(), submit(ISSUED), choose()], "--transcript", path)
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pydantic_ai', 'openai', 'anthropic', 'httpx2')));"
        f"from forkpoint.cli import main; sys.exit(main(['agent', '--replay', {path!r}, '--quiet']))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "")
    assert "Supported by the evidence" in done.stdout


def test_relative_paths_are_told_as_they_were_said(agent, command, tmp_path, monkeypatch):
    shutil.copytree(CASES / "0001", tmp_path / "case")
    monkeypatch.chdir(tmp_path)
    with ScriptedServer([calls("explain", query="Xid 79"), *reading(), submit(), choose()]) as server:
        args = ["case/capture", "--source", "case/source", "--model", LOCAL, "--endpoint", server.url]
        live = command("agent", *args, "--transcript", "t.jsonl")

    assert json.loads(Path("t.jsonl").read_text().splitlines()[0])["record"]["paths"] == ["case/capture"]
    assert command("agent", "--replay", "t.jsonl") == live
