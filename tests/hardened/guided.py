"""Coverage-guided fuzzing of reading, the pipeline and all outputs, with Atheris: `make fuzz MINUTES=10`.

An input is one file beside three good dumps. It is read by both readers; an exception, a part that broke, more than 1 GB
or more than 20 s ends the run and leaves the input as `crash-*`: make a test of it. Inputs that reach new code are kept in
the corpus folder.
"""

import os
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

with atheris.instrument_imports(include=["forkpoint"]):
    from forkpoint.errors import InputError
    from hardened.odd import ODD, good_dump, with_good
    from hardened.whole import run_whole

NAMES = ("nccl_trace_rank_3", "rank_3.log", "evidence.bin")
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
    with_good(FOLDER, "nccl_trace_rank_3", b"")
    (FOLDER / "nccl_trace_rank_3").unlink()
    plant(Path(sys.argv[1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
