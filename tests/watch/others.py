"""Those whom a watch talks to, as small real servers on this machine."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from forkpoint.live.watch.sources.ask import SourceAddress

Answer = Callable[[socket.socket], None]


@contextmanager
def answering(answer: Answer) -> Iterator[SourceAddress]:
    """Whoever connects is given to `answer`, in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=_accept, args=(server, answer), daemon=True)
        thread.start()
        yield SourceAddress("127.0.0.1", server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        thread.join(10)


def _accept(server: socket.socket, answer: Answer) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        Thread(target=_talk, args=(connection, answer), daemon=True).start()


def _talk(connection: socket.socket, answer: Answer) -> None:
    with connection:
        try:
            connection.recv(65536)
            answer(connection)
        except OSError:
            return  # who asked has heard enough


def drips(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"H")
        time.sleep(0.05)


@contextmanager
def hooked(statuses: list[int]) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A web server's address, and what was sent to it. It answers with these statuses, then with 200."""
    heard: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(statuses.pop(0) if statuses else 200)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/services/secret?a=b", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
