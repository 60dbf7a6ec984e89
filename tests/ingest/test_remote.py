"""Evidence behind addresses: fsspec's memory, and its HTTP driver with a real server, with and without ranges."""

import io
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.machines import essence, plant
from forkpoint.errors import UsageError
from forkpoint.evidence import read
from forkpoint.evidence.files import is_url, open_file, shown
from forkpoint.evidence.remote import list_files
from forkpoint.pipeline import diagnose
from looping import for_each

fsspec = pytest.importorskip("fsspec")

LOG = b"".join(b"step %07d of the training run, loss 0.123456\n" % step for step in range(400_000))
"""Some 17 MB: more than is read at once."""


class Server(SimpleHTTPRequestHandler):
    """Files of a folder; of a file so much as was asked for."""

    asked: list[str]
    ranges = True
    broken = ""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if path.name == self.broken:
            self.send_error(503)
            return
        self.asked.append(f"{path.name} {self.headers.get('Range', '')}")
        if not wanted or not self.ranges:
            super().do_GET()
            return
        first, last = int(wanted[1]), min(int(wanted[2]), path.stat().st_size - 1)
        with path.open("rb") as file:
            file.seek(first)
            piece = file.read(last - first + 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{path.stat().st_size}")
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        self.wfile.write(piece)

    def end_headers(self) -> None:
        if not self.ranges:
            self.send_header("Accept-Ranges", "none")
        super().end_headers()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, type[Server]]]:
    pytest.importorskip("aiohttp")

    class Here(Server):
        asked: list[str] = []  # noqa: RUF012 - of this server

        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))  # type: ignore[arg-type]

    plant(tmp_path, ["node1"], per_node=2)
    (tmp_path / "node1" / "dumps" / ".hidden").write_text("x")
    (tmp_path / "node1" / "train.log").write_bytes(LOG)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Here
    server.shutdown()
    server.server_close()


def test_a_folder_of_a_web_server_is_listed_and_its_dumps_are_one_request_each(
    served: tuple[str, type[Server]], tmp_path: Path
) -> None:
    address, server = served

    listed = list_files(f"{address}/node1/dumps/")
    server.asked.clear()
    read = [open_file(url).read() for url in listed]

    names = [f"nccl_trace_rank_{rank}" for rank in (0, 1)]
    assert listed == [f"{address}/node1/dumps/{name}" for name in names]
    assert read == [(tmp_path / "node1" / "dumps" / name).read_bytes() for name in names]
    assert [line.partition(" ")[0] for line in server.asked] == names


def test_of_a_large_file_only_the_blocks_that_are_wanted_travel(served: tuple[str, type[Server]]) -> None:
    address, server = served

    with open_file(f"{address}/node1/train.log") as stream:
        assert stream.peek(100)[:100] == LOG[:100]
        stream.seek(-100, io.SEEK_END)
        end = stream.read()

    assert end == LOG[-100:]
    ranges = [re.search(r"bytes=(\d+)-(\d+)", line) for line in server.asked]
    travelled = sum(int(found[2]) - int(found[1]) + 1 for found in ranges if found)
    assert all(ranges)
    assert travelled < len(LOG) / 2


def test_a_server_without_ranges_is_read_once_from_the_front(served: tuple[str, type[Server]]) -> None:
    address, server = served
    server.ranges = False

    with open_file(f"{address}/node1/train.log") as stream:
        assert not stream.seekable()
        assert stream.read() == LOG


def test_what_a_server_does_not_have_is_an_error_like_that_of_a_file(served: tuple[str, type[Server]]) -> None:
    address, _ = served

    with pytest.raises(OSError, match="FileNotFoundError"):
        open_file(f"{address}/nothing").read()
    with pytest.raises(UsageError, match="no such file or directory"):
        list_files(f"{address}/nothing/")


def test_a_server_that_is_not_there_is_said() -> None:
    pytest.importorskip("aiohttp")

    with pytest.raises(UsageError, match="cannot be listed"):
        list_files("http://127.0.0.1:1/dumps/")


def test_files_in_memory_are_found_at_any_depth_but_hidden_ones() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("run/rank_1", "run/a/rank_0", "run/.git/rank_9", "run/.rank_8", "runner/rank_7"):
        memory.pipe(f"/forkpoint-remote/{name}", name.encode())
    try:
        listed = list_files("memory://forkpoint-remote/run")
        text = open_file(listed[0]).read()
        single = list_files("memory://forkpoint-remote/run/rank_1")
    finally:
        memory.rm("/forkpoint-remote", recursive=True)

    assert listed == ["memory://forkpoint-remote/run/a/rank_0", "memory://forkpoint-remote/run/rank_1"]
    assert text == b"run/a/rank_0"
    assert single == ["memory://forkpoint-remote/run/rank_1"]


def test_nothing_at_an_address_is_said() -> None:
    with pytest.raises(UsageError, match="memory://nowhere: no such file or directory"):
        list_files("memory://nowhere")
    with pytest.raises(UsageError, match="Protocol not known: nosuch"):
        list_files("nosuch://x/")


@pytest.mark.parametrize(("module", "says"), [("fsspec", "'forkpoint[collect]'"), ("s3fs", "s3fs")])
def test_what_is_not_installed_is_named_with_its_pip_command(module: str, says: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from forkpoint.evidence.remote import list_files; list_files('s3://a/')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert f"pip install {says}" in run.stderr


@for_each(
    ("path", "url"),
    [("s3://a/b", True), ("http://a", True), ("/a://b", False), ("C:/x", False), ("-", False), ("a/b", False)],
)
def test_addresses_are_told_from_paths(path: str, url: bool) -> None:
    assert is_url(path) is url


def test_no_password_or_signature_is_shown() -> None:
    assert shown("https://ann:secret@host:8/a/b?X-Amz-Signature=abc#f") == "https://host:8/a/b"
    assert shown("s3://bucket/rank_0") == "s3://bucket/rank_0"


def test_a_verdict_from_addresses_is_that_of_the_files(served: tuple[str, type[Server]], tmp_path: Path) -> None:
    address, _ = served

    there = diagnose(read([f"{address}/node1/dumps/"]))

    assert essence(there) == essence(diagnose(read([str(tmp_path / "node1" / "dumps")])))
    assert there.suspects == (1,)
    assert any(evidence.file == f"{address}/node1/dumps/nccl_trace_rank_1" for evidence in there.evidence)


def test_a_file_that_breaks_off_on_its_way_is_a_problem_and_the_others_go_on(
    served: tuple[str, type[Server]], tmp_path: Path
) -> None:
    address, server = served
    server.broken = "train.log"

    capture = read([f"{address}/node1/"])

    assert [problem.file for problem in capture.problems] == [f"{address}/node1/train.log"]
    assert len(capture.traces) == 2
