"""A program: serves one GGUF file on loopback with llama.cpp, prints its address as one line, and ends with its input.

    python llama_server.py MODEL.gguf < /dev/tty

What is asked passes a door that makes the JSON schema narrower, as a model this small would repeat itself until it is cut
off, and what is cut off cannot be read: lists, texts and numbers get a greatest value, and there are no blanks between
tokens. A hypothesis has at least one claim, since who claims nothing is checked in nothing.
"""

import json
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import xllamacpp

CONTEXT = 8192
THREADS = 1
"""Two are slower where two cores are shared with others."""
MOST_TOKENS = 240
"""Of one answer."""
MOST_ITEMS = 2
MOST_LETTERS = 32
GREATEST = 20
NO_BLANKS = {"x-guidance": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}}
_READ = 65536


def narrowed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [narrowed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    narrow = {key: narrowed(value) for key, value in schema.items()}
    if "claims" in narrow.get("properties", {}):
        narrow["properties"]["claims"]["minItems"] = 1
    if narrow.get("type") == "array":
        narrow["maxItems"] = MOST_ITEMS
    if narrow.get("type") == "integer":
        narrow |= {"minimum": 0, "maximum": GREATEST}
    if narrow.get("type") == "string" and not {"enum", "const"} & narrow.keys():
        narrow["maxLength"] = MOST_LETTERS
    return narrow


class _Door(BaseHTTPRequestHandler):
    behind: str
    """Host and port of llama.cpp."""

    def do_GET(self) -> None:
        self._pass(b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted = body.pop("response_format", None)
        if wanted is not None:
            body["grammar"] = xllamacpp.json_schema_to_grammar(narrowed(wanted["json_schema"]["schema"]) | NO_BLANKS)
        self._pass(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _pass(self, body: bytes) -> None:
        self.close_connection = True
        behind = HTTPConnection(self.behind)
        try:
            behind.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = behind.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Connection", "close")
            self.end_headers()
            while piece := answer.read1(_READ):
                self.wfile.write(piece)
        except ConnectionError:  # who asked has heard enough, and llama.cpp stops when its connection is closed
            pass
        finally:
            behind.close()


def open_model(path: str) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.n_predict = MOST_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.sampling.temp = 0.7
    params.sampling.seed = 1
    params.sampling.penalty_repeat = 1.1
    params.sampling.penalty_last_n = 64
    params.verbosity = 0
    return xllamacpp.Server(params)


def main(path: str) -> None:
    server = open_model(path)
    _Door.behind = server.listening_address.removeprefix("http://")
    door = ThreadingHTTPServer(("127.0.0.1", 0), _Door)
    door.daemon_threads = True
    Thread(target=door.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{door.server_port}/v1", flush=True)  # noqa: T201 what whoever started it waits for
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
