"""`forkpoint serve` over real sockets: who is let in, what is listed, what is told when files come."""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cases import CASES
from forkpoint.cli import main
from forkpoint.live.processes import read_state
from looping import for_each
from serve.conftest import PATIENCE_S, Server, serving

HOSTILE = '<img src=x onerror=alert(1)>\x1b[2J\u202e"&'
SHOWN = "&lt;img src=x onerror=alert(1)&gt;\\x1b[2J\\u202e&quot;&amp;"


@pytest.fixture(scope="module")
def incidents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that can be read, one under a hostile name, and one that cannot be read."""
    root = tmp_path_factory.mktemp("incidents")
    shutil.copytree(CASES / "0001" / "capture", root / "monday")
    for name in ("numpy", "json", "forkpoint"):
        (root / "monday" / f"{name}.py").write_text("import pathlib; pathlib.Path('run').touch()")
    shutil.copytree(CASES / "0003" / "capture", root / HOSTILE)
    (root / "broken").mkdir()
    (root / "broken" / "nccl_trace_rank_0").write_bytes(b"\x80\x02cposix\nsystem\n(S'true'\ntR.")
    (root / ".aside").mkdir()
    (root / ".aside" / "log").write_text("x")
    (root / "empty").mkdir()
    return root


@pytest.fixture(scope="module")
def server(incidents: Path) -> Iterator[Server]:
    with serving(incidents, cwd=incidents / "monday") as server:
        yield server


def test_the_token_lets_in_once_and_a_cookie_from_then_on(server: Server) -> None:
    welcome = server.ask(f"/?token={server.token}")
    name, _, rest = welcome.headers["set-cookie"].partition(";")

    assert welcome.status == 200
    assert server.token not in welcome.text
    assert {part.strip().lower() for part in rest.split(";")} == {"httponly", "path=/", "samesite=strict"}
    assert server.ask("/", Cookie=name).status == 200


@for_each("path", ["/", "/?token=", "/?token=wrong", "/?token=%ff", "/events", "/incidents/x", "/nowhere"])
def test_nothing_is_told_without_the_token(server: Server, path: str) -> None:
    refused = server.ask(path)

    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert "monday" not in refused.text


def test_a_wrong_cookie_is_refused(server: Server) -> None:
    assert server.ask("/", Cookie=f"forkpoint-{server.port}=x").status == 403
    assert server.ask("/", Cookie=f"forkpoint-{server.port}=é".encode("latin-1").decode("latin-1")).status == 403


@for_each("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "[::1]:{port}", ""])
def test_another_name_of_this_machine_is_refused(server: Server, host: str) -> None:
    assert server.ask("/", Host=host.format(port=server.port), **server.cookie).status in {400, 403}


def test_localhost_is_a_name_of_this_machine(server: Server) -> None:
    assert server.ask("/", Host=f"localhost:{server.port}", **server.cookie).status == 200


@for_each("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_a_page_of_another_origin_is_refused_even_with_the_token(server: Server, origin: str) -> None:
    origin = origin.format(port=server.port)

    assert server.ask("/", Origin=origin, **server.cookie).status == 403
    assert server.ask(f"/?token={server.token}", Origin=origin).status == 403


def test_its_own_pages_may_ask(server: Server) -> None:
    assert server.ask("/", Origin=f"http://127.0.0.1:{server.port}", **server.cookie).status == 200


@for_each("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    refused = server.ask("/", method, **server.cookie)

    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_answered_without_a_body(server: Server) -> None:
    for path in ("/", "/events"):
        answer = server.ask(path, "HEAD", **server.cookie)
        assert (answer.status, answer.text) == (200, "")


@for_each("path", ["/", "/nowhere", "/?token=wrong", "/incidents/x"])
def test_every_answer_forbids_what_a_browser_could_do_with_it(server: Server, path: str) -> None:
    headers = server.get(path).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers


@for_each(
    "path",
    [
        "/../../etc/passwd",
        "/incidents/../../../etc/passwd",
        "/incidents/..%2f..%2fetc%2fpasswd",
        "/incidents/monday",
        "/incidents/monday/nccl_trace_rank_0",
        "/incidents/%00",
        "//etc/passwd",
    ],
)
def test_no_path_leads_to_a_file(server: Server, path: str) -> None:
    answer = server.get(path)

    assert answer.status == 404
    assert "root:" not in answer.text


def test_the_list_has_a_row_for_each_incident_and_says_what_is_wrong_with_one(server: Server) -> None:
    server.wait_for("/", "host-stall")
    server.wait_for("/", "divergent-path")
    page = server.wait_for("/", 'class="problem"')

    assert page.count("<tr><td") == 3
    assert '<td class="suspects">0</td><td class="confidence">0.95</td>' in page
    assert "Rank 0 called all_reduce at metrics.py:15" in page
    assert "2026-11-15T01:18:28Z" in page
    assert "nothing to diagnose in" in page
    assert ".aside" not in page
    assert "empty" not in page


def test_a_hostile_name_is_text_and_not_part_of_addresses(server: Server) -> None:
    page = server.wait_for("/", "host-stall")

    assert f">{SHOWN}</a>" in page
    assert "<img" not in page
    assert "onerror" not in server.incident(SHOWN)


def test_an_incident_is_the_page_of_the_html_report_that_also_listens(server: Server, tmp_path: Path) -> None:
    page = server.get(server.incident("monday")).text
    main(["diagnose", str(CASES / "0001" / "capture"), "--html", str(tmp_path / "r.html"), "--quiet"])
    on_disk = (tmp_path / "r.html").read_text()

    assert "connect-src 'self'" in page
    assert '<a class="quiet" href="/">All incidents</a>' in page
    for text in ("EventSource", "connect-src", "All incidents"):
        assert text not in on_disk
    start, style = on_disk.index("<style>"), on_disk.index("</style>")
    assert on_disk[start:style] in page


def test_a_file_that_comes_is_told_and_shown(tmp_path: Path) -> None:
    for dump in ("nccl_trace_rank_0", "nccl_trace_rank_1"):
        shutil.copy(CASES / "0001" / "capture" / dump, tmp_path)
    with serving(tmp_path) as server:
        before = server.wait_for("/", 'id="picture"')
        shutil.copy(CASES / "0001" / "capture" / "nccl_trace_rank_2", tmp_path)
        told = server.wait_for_change(before)
        after = server.get("/").text

    assert told.startswith(": watching\n\n")
    assert told.endswith("event: changed\ndata: \n\n")
    assert '"dumps":2' in before
    assert '"dumps":3' in after


def test_ctrl_c_ends_it_while_a_page_listens(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        connection.request("GET", "/events?page=none&seen=gone", headers=server.cookie)
        stream = connection.getresponse()
        assert stream.readline() == b": watching\n"
        assert "No evidence here yet" in server.get("/").text

    assert b"changed" not in stream.read()
    connection.close()


def test_connections_that_ask_nothing_do_not_keep_a_reader_out(tmp_path: Path) -> None:
    with serving(tmp_path) as server, ExitStack() as held:
        for number in range(260):
            idle = held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            if number % 2:
                idle.sendall(b"GET / HTTP/1.1\r\nHost: ")

        assert server.get("/").status == 200


def test_a_worker_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """It reads from a pipe to which nobody writes."""
    os.mkfifo(tmp_path / "log_rank_0.txt")
    code = (
        "import sys, time\nfrom forkpoint.live.children import Diagnosis, Task\n"
        "begun = Diagnosis(Task((sys.argv[1],)), own_session=True)\nprint(begun._child.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log_rank_0.txt")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        worker = int(parent.stdout.readline())
        parent.kill()

    until = time.monotonic() + PATIENCE_S
    while (state := read_state(worker)) and not state.is_dead and time.monotonic() < until:
        time.sleep(0.1)
    assert state is None or state.is_dead


def test_no_module_is_taken_from_the_folder_it_is_started_in(server: Server, incidents: Path) -> None:
    server.incident("monday")

    assert not (incidents / "monday" / "run").exists()


def test_a_port_that_is_taken_is_wrong_usage(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path), "--port", str(server.port)]) == 2

    assert "leave it out" in capsys.readouterr().err


@for_each(
    ("args", "says"),
    [
        (["/nonexistent"], "is not a directory"),
        ([".", "--port", "65536"], "from 0 to 65535"),
        ([".", "--embed-source"], "needs --source DIR"),
    ],
)
def test_wrong_usage_is_said(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *args]) == 2

    assert says in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_how_to_install_it(missing: str) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None; from forkpoint.cli import main; sys.exit(main(['serve', '.']))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, f"forkpoint: serve needs {missing}: pip install 'forkpoint[serve]'\n")
