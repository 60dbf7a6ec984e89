"""`forkpoint mcp` as clients start it: a process of its own, over standard input and output, and over HTTP."""

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.mcp_peer import (
    CASE_0001,
    COMMAND,
    LIE,
    PATCH,
    PATIENCE_S,
    TRUTH,
    HttpServer,
    Peer,
    connected,
    over_http,
    over_stdio,
    serving_http,
)
from cases import CASES
from forkpoint.cli import main
from looping import for_each

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
CALLS = {
    "evidence": {"id": "E1"},
    "progress": {"group": "default_pg"},
    "table": {"group": "default_pg", "seq": 16, "around": 1},
    "threads": {"rank": 0},
    "stack_diff": {"rank": 0, "other": 1},
    "read_source": {"file": "train.py", "line": 15, "around": 2},
    "callers": {"function": "log_progress"},
    "taint": {"file": "train.py", "line": 15},
    "lint": {"file": "train.py", "line": 15},
    "history": {"file": "train.py", "line": 15},
    "log_lines": {"rank": 1, "contains": "watchdog"},
    "explain": {"query": "divergent-path"},
    "similar": {"cause": "divergent-path"},
    "submit_hypothesis": TRUTH,
    "offer_remedy": {"file": "train.py", "line": 15},
    "check_patch": {"patch": PATCH, "functions": ["log_progress"]},
    "brief": {"part": "where"},
    "verdict": {},
    "why": {},
    "files": {},
    "waits": {},
    "more": {},
}
REFUSED_HERE = {"channels": {"source": 0, "destination": 1}, "changes": {}}
"""The case has no messages, and nothing to be compared with is named."""


@pytest.fixture(scope="module")
def http_server() -> Iterator[HttpServer]:
    with serving_http(*CASE_0001) as server:
        yield server


@pytest.fixture(scope="module", params=["stdio", "http"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with connected(
        over_stdio(*CASE_0001) if request.param == "stdio" else over_http(request.getfixturevalue("http_server"))
    ) as peer:
        yield peer


def test_every_tool_is_asked_in_this_file(peer: Peer) -> None:
    assert set(peer.tools()) == {*CALLS, *REFUSED_HERE}


@for_each("name", CALLS)
def test_every_tool_answers_in_the_size_of_a_page(peer: Peer, name: str) -> None:
    if name == "more":
        peer.text("similar")  # which is long

    assert peer.text(name, **CALLS[name])


@pytest.mark.parametrize("name", REFUSED_HERE)
def test_a_question_that_the_case_cannot_answer_is_refused_in_one_line(peer: Peer, name: str) -> None:
    assert re.search("recorded in this case|name a commit", peer.refusal(name, **REFUSED_HERE[name]))


def test_resources_and_the_prompt_can_be_read(peer: Peer) -> None:
    assert json.loads(peer.read("case://verdict"))["cause"] == "divergent-path"
    assert "divergent-path" in peer.read("case://report")
    assert json.loads(peer.read("case://evidence/E1"))["rank"] == 1
    assert "Find out why the ranks of this job diverged" in peer.prompt()
    assert peer.prompt().endswith(peer.text("brief"))


def test_a_lie_is_contradicted_and_changes_nothing(peer: Peer) -> None:
    before = peer.text("verdict")
    told = peer.whole("submit_hypothesis", **LIE)

    assert "contradicted: rank 3 has not reached" in told
    assert "\nsupported: " not in told
    assert peer.text("verdict") == before


def test_what_cannot_be_asked_is_refused(peer: Peer) -> None:
    assert "no such tool" in peer.refusal("run_shell", command="true")
    assert "rank" in peer.refusal("threads", rank="zero")
    assert "no such tool" in peer.refusal("open_case", paths=["."], source=[])


def test_without_a_path_cases_are_opened_below_the_folder_it_was_started_in() -> None:
    with connected(over_stdio(cwd=CASES / "0001")) as peer:
        assert "read: 4 dumps, 4 logs" in peer.text("open_case", paths=["capture"], source=["source"])
        assert "outside the root" in peer.refusal("open_case", paths=["../0002"], source=[])
        assert json.loads(peer.read("case://verdict"))["evidence"][0]["file"].startswith("capture/")


def test_standard_output_is_the_protocol_and_the_end_of_input_ends_it() -> None:
    ended = subprocess.run(
        [*COMMAND, *CASE_0001],
        input=f"{PING}\nno json\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert ended.returncode == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in ended.stdout.splitlines())
    assert json.loads(ended.stdout.splitlines()[0])["id"] == 1


# Over HTTP.


def ask(server: HttpServer, **headers: str) -> int:
    """Status of one request, with these headers over those that are right."""
    right = {
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/mcp", PING, right | headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_client_that_shakes_hands_as_before_is_served_too(http_server: HttpServer) -> None:
    with connected(over_http(http_server), "legacy") as peer:
        assert ", rank 0; " in peer.text("verdict")


def test_who_has_the_token_is_let_in_under_both_names_of_this_machine(http_server: HttpServer) -> None:
    assert ask(http_server) == 200
    assert ask(http_server, Host=f"localhost:{http_server.port}", Origin=f"http://localhost:{http_server.port}") == 200


@for_each("token", ["", "Bearer", "Bearer wrong", "Basic {token}", "Bearer {token}x", "bearer {token}\u00e9"])
def test_nobody_is_let_in_without_the_token(http_server: HttpServer, token: str) -> None:
    assert ask(http_server, Authorization=token.format(token=http_server.token)) == 401


@for_each("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1"])
def test_another_host_name_is_refused_even_with_the_token(http_server: HttpServer, host: str) -> None:
    assert ask(http_server, Host=host.format(port=http_server.port)) == 421


@for_each("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_another_origin_is_refused_even_with_the_token(http_server: HttpServer, origin: str) -> None:
    assert ask(http_server, Origin=origin.format(port=http_server.port)) == 403


# The command line.


def test_a_port_that_is_taken_is_a_wrong_usage(http_server: HttpServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--http", str(http_server.port)]) == 2
    assert "Address already in use; 0 takes any free port" in capsys.readouterr().err


@for_each(
    ("arguments", "why"),
    [
        (["-"], "standard input belongs to the protocol"),
        (["no-such-folder"], "does not exist"),
        ([str(CASES), "--root", str(CASES)], "--root says where"),
        (["--source", str(CASES)], "--source needs PATH"),
        (["--http", "65536"], "must be a number"),
        (["--root", "no-such-folder"], "is not a directory"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_served(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_chosen_token_must_be_long_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORKPOINT_MCP_TOKEN", "brief")

    assert main(["mcp", "--http", "0"]) == 2
    told = capsys.readouterr().err
    assert "at least 16" in told
    assert "brief" not in told


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    monkeypatch.delitem(sys.modules, "forkpoint.agent.mcp.server", raising=False)

    assert main(["mcp"]) == 2
    assert "mcp needs mcp: pip install 'forkpoint[mcp]'" in capsys.readouterr().err


def test_help_does_not_pay_for_the_server() -> None:
    program = (
        "import sys; from forkpoint.cli import main; main(['mcp', '--help']);"
        "sys.stderr.write(', '.join({'mcp', 'pydantic', 'anyio', 'numpy', 'starlette'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)

    assert "--root DIR" in ended.stdout
    assert ended.stderr == ""
