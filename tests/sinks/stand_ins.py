"""Services on this machine: real HTTP, TLS and SMTP, that answer as they are told, and what was sent to them."""

import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import verdicts
from forkpoint.model.verdict import Verdict
from forkpoint.sinks.describe import describe_notice
from forkpoint.sinks.notice import Notice, NoticeOrigin

SECRET = "S3cr3tHook0001"
ORIGIN = NoticeOrigin("forkpoint run", "node-7", "pretrain", "/evidence/run-1")


def notice_of(verdict: Verdict = verdicts.FOUND, seen: tuple[str, ...] = (), origin: NoticeOrigin = ORIGIN) -> Notice:
    return describe_notice(verdict, None, origin, seen)


@dataclass
class Heard:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebService:
    url: str
    heard: list[Heard] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"ok"


@contextmanager
def web_service(answers: list[Answer] | None = None, tls: ssl.SSLContext | None = None) -> Iterator[WebService]:
    """It gives these answers, then 200. Its address holds a secret."""
    left = list(answers or [])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            service.heard.append(Heard(self.command, self.path, dict(self.headers), self.rfile.read(length)))
            answer = left.pop(0) if left else Answer()
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST  # noqa: N815 - its name there

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # who does not trust the certificate leaves in the middle
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "https" if tls else "http"
    service = WebService(f"{scheme}://127.0.0.1:{server.server_port}/services/{SECRET}")
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def silent_service(drip: bytes = b"") -> Iterator[str]:
    """Takes connections and never answers; or never ends to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []
        Thread(target=_hold, args=(server, kept, drip), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/services/{SECRET}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()


def _hold(server: socket.socket, kept: list[socket.socket], drip: bytes) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        kept.append(connection)
        if drip:
            Thread(target=_drip, args=(connection, drip), daemon=True).start()


def _drip(connection: socket.socket, drip: bytes) -> None:
    try:
        while True:
            connection.sendall(drip)
            time.sleep(0.05)
    except OSError:
        return


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side for 127.0.0.1, and the file that makes a client trust it."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *words, *names], check=True, capture_output=True, env=os.environ)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert
