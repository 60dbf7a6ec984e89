import json
import subprocess
import sys
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from forkpoint.cli import main
from forkpoint.knowledge.base import EntryKind, entries
from forkpoint.report.explain import SCHEMA
from looping import for_each

DOCUMENT = json.loads((files("forkpoint.report") / "explain.schema.json").read_text())
VALIDATOR = Draft202012Validator(DOCUMENT)
LINE = "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=X)"


@pytest.fixture(autouse=True)
def _fixed_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@for_each(
    ("args", "heading"),
    [
        (["79"], "Xid 79: the GPU has fallen off the bus"),
        (["xid", "79"], "Xid 79: the GPU has fallen off the bus"),
        (["NCCL_TIMEOUT"], "NCCL_TIMEOUT: does not exist"),
        (["ncclRemoteError"], "ncclRemoteError: the peer went away, or the network to it failed"),
        (["divergent-path"], "divergent-path: ranks took different control flow"),
        ([LINE], "watchdog-timeout: a collective took longer than its group's timeout"),
        (LINE.split(), "watchdog-timeout: a collective took longer than its group's timeout"),
    ],
)
def test_it_says_what_a_code_means(args: list[str], heading: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *args]) == 0

    out, err = capsys.readouterr()
    assert out.splitlines()[0] == heading
    assert err == ""
    assert [
        part for part in ("What it means", "What it does not mean", "What to do", "Source") if part not in out
    ] == []


@for_each("kind", EntryKind)
def test_no_line_is_wider_than_the_terminal_unless_a_word_is(
    kind: EntryKind, capsys: pytest.CaptureFixture[str]
) -> None:
    for entry in entries(kind)[::3]:
        main(["explain", entry.query])

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80 and len(line.split()) > 2] == []


@for_each(
    ("query", "near"), [("NCCL_TIMOUT", "NCCL_TIMEOUT"), ("divergent-pth", "divergent-path"), ("xid999", "xid99")]
)
def test_unknown_codes_exit_2_with_suggestions(query: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", query]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert f"nothing known about '{query}'; did you mean " in err
    assert near in err
    assert err.count("\n") == 1


@for_each(("query", "near"), [("fallen off", "xid79"), ("ecc", "xid48")])
def test_words_of_a_title_suggest_its_code(query: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", query]) == 2

    assert f"did you mean {near}" in capsys.readouterr().err


def test_a_question_about_a_job_leads_to_the_commands_for_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "why does my job hang"]) == 2

    assert "`forkpoint attach` if it hangs now" in capsys.readouterr().err


@for_each("query", ["SIGTERM", "exitcode -9", "exit code 137", "exitcode: -11"])
def test_signals_and_exit_codes_are_explained(query: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", query]) == 0

    assert "killed (SIGKILL" in " ".join(capsys.readouterr().out.split())


@for_each("args", [[], ["--list", "nonsense"], ["--list", "xid", "79"], ["", "--json"], [" "]])
def test_wrong_usage_exits_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *args]) == 2

    assert capsys.readouterr().out == ""


def test_an_unknown_line_is_not_echoed_at_length_nor_raw(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "\x1b[2J" + "x " * 5000]) == 2

    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert len(err) < 300


def test_the_schema_is_itself_valid_and_versioned() -> None:
    Draft202012Validator.check_schema(DOCUMENT)

    assert DOCUMENT["properties"]["schema"]["const"] == SCHEMA
    assert DOCUMENT["properties"]["entries"]["items"]["properties"]["kind"]["enum"] == list(EntryKind)


@for_each(
    "args",
    [["79"], ["NCCL_TIMEOUT"], [LINE], ["6"], ["--list"], ["--list", "variable"], ["\x7f " + LINE]],
    ids=["xid", "variable", "line", "number", "list", "list of a kind", "control character"],
)
def test_json_validates(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--json", *args]) == 0

    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x7f" not in out
    VALIDATOR.validate(json.loads(out))


def test_json_has_the_entry_that_is_meant_first(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "--json", LINE])

    document = json.loads(capsys.readouterr().out)
    assert document["query"] == LINE
    assert document["entries"][0]["code"] == "watchdog-timeout"


def test_list_names_every_entry_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--list"]) == 0

    named = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert named == [entry.query for kind in EntryKind for entry in entries(kind)]


def test_list_of_a_kind_names_that_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--list", "cause"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        entry.code for entry in entries(EntryKind.CAUSE)
    ]


def imported_and_read(*args: str) -> tuple[set[str], set[str]]:
    """Heavy modules that were imported, and kinds whose file was read."""
    code = (
        "import sys; from forkpoint.cli import main; main(['explain', *sys.argv[1:]]);"
        "from forkpoint.knowledge import base as load; import tomllib; read = []; real = tomllib.loads;"
        "heavy = {'numpy', 'rich', 'torch', 'difflib', 'json'} & set(sys.modules);"
        "tomllib.loads = lambda text: read.append(1) or real(text);"
        "fresh = [k for k in load.EntryKind if (read.clear() or load._read(k)) and read];"
        "print(*heavy, '|', *(k for k in load.EntryKind if k not in fresh), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    heavy, _, kinds = done.stderr.strip().partition("|")
    return set(heavy.split()), set(kinds.split())


@for_each(
    ("query", "kinds"),
    [
        ("xid79", {"xid"}),
        ("79", {"xid", "nccl"}),
        ("NCCL_TIMEOUT", {"variable"}),
        ("ncclRemoteError", {"nccl"}),
        ("divergent-path", {"cause"}),
        ("IBV_WC_RETRY_EXC_ERR", {"nccl"}),
    ],
)
def test_only_what_was_asked_for_is_read(query: str, kinds: set[str]) -> None:
    assert imported_and_read(query) == (set(), kinds)
