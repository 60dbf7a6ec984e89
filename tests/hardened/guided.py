"""Coverage-guided fuzzing of reading, the pipeline and all outputs, with Atheris: `make fuzz MINUTES=10`.

An input is one file beside three good dumps. It is read by both readers; an exception, a part that broke, more than 1 GB
or more than 20 s ends the run and leaves the input as `crash-*`: make a test of it. Inputs that reach new code are kept in
the corpus folder.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

with atheris.instrument_imports(include=["forkpoint"]):
    from forkpoint.errors import InputError
    from hardened.odd import ODD, good_dump, with_good
    from hardened.whole import run_whole

NAMES = ("nccl_trace_rank_3", "rank_3.log", "evidence.bin")
INPUTS = 4000
"""That one process runs: Atheris itself grows by 0.2 MB with each, until it looks as if an input took 1 GB."""
FOLDER = Path(tempfile.mkdtemp(prefix="forkpoint-fuzz-"))


def one_input(data: bytes) -> None:
    """The first byte chooses the file's name and the reader."""
    if not data:
        return
    os.environ["FORKPOINT_NATIVE"] = str(data[0] & 1)
    file = FOLDER / NAMES[(data[0] >> 1) % len(NAMES)]
    file.write_bytes(data[1:])
    try:
        verdict = run_whole([FOLDER], in_process=True)  # what a child reaches is not seen here
    except InputError:
        return
    finally:
        file.unlink()
    if verdict.internal:
        raise RuntimeError(verdict.internal[0].trace)


def plant(corpus: Path) -> None:
    """Where the search begins: files that once broke something, and one that is in order."""
    corpus.mkdir(parents=True, exist_ok=True)
    begins = {
        "good": good_dump(3),
        **{name: make() for name, make in ODD.items() if name != "a group of a million ranks"},
    }
    for name, data in begins.items():
        for choice in range(2):
            (corpus / f"{name.replace(' ', '-')}-{choice}").write_bytes(bytes((choice,)) + data)


def main() -> None:
    limit = re.search(r"-max_total_time=(\d+)", " ".join(sys.argv))
    if limit and not any(given.startswith("-runs=") for given in sys.argv):
        _in_turn(time.monotonic() + int(limit[1]))
        return
    _fuzz()


def _in_turn(until: float) -> None:
    """One process after another, with the same corpus. Ends with the first that finds something."""
    options = [given for given in sys.argv if not given.startswith("-max_total_time=")]
    while (left := int(until - time.monotonic())) > 0:
        done = subprocess.run([sys.executable, *options, f"-max_total_time={left}", f"-runs={INPUTS}"], check=False)
        if done.returncode:
            sys.exit(done.returncode)


def _fuzz() -> None:
    with_good(FOLDER, "nccl_trace_rank_3", b"")
    (FOLDER / "nccl_trace_rank_3").unlink()
    plant(Path(sys.argv[1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
