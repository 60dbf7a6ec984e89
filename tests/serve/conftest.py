"""A real server in a process of its own, asked over real sockets."""

import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 600


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Server:
    process: "subprocess.Popen[str]"
    url: str
    port: int
    token: str

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"forkpoint-{self.port}={self.token}"}

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """As nobody in particular: with these headers alone."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, told, response.read().decode())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        """As the browser that has opened the address once."""
        return self.ask(path, **self.cookie)

    def wait_for_change(self, page: str) -> str:
        """Listens as the page would, until it is told to load itself again."""
        events = re.search(r'id="live">([^<]+)<', page)
        assert events
        return self.get(events[1]).text

    def wait_for(self, path: str, text: str) -> str:
        """The page at this place, once it says so."""
        page = self.get(path).text
        while text not in page:
            assert "event: changed" in self.wait_for_change(page)
            page = self.get(path).text
        return page

    def incident(self, name: str) -> str:
        """The place of an incident in the list."""
        found = re.search(rf'<a href="([^"]+)">{re.escape(name)}</a>', self.wait_for("/", f">{name}</a>"))
        assert found
        return found[1]


@contextmanager
def serving(folder: Path | None, *options: str, cwd: Path | None = None) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "forkpoint", "serve", *([str(folder)] if folder else []), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})", url)
        assert found, process.communicate()
        yield Server(process, url, int(found[1]), found[2])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    assert err == "forkpoint: open this address in a browser; Ctrl-C ends the server\n"
