"""Logs and stacks as torch, torchrun and faulthandler print them, for small jobs written by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import forkpoint
from forkpoint.evidence.logs import read_log
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Verdict

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
CLOSED = "RuntimeError: [/__w/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:13221"
TIMED_OUT = "RuntimeError: [/__w/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete"
REFUSED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /__w/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 1280 vs 1024. "
    "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
    "Fatal Python error: Aborted\n"
)
Place = tuple[str, int, str]
"""File, line, function."""
MAIN: Place = ("/job/train.py", 40, "main")


def raised(rank: int, error: str, *places: Place, call: str = "all_reduce", code: str = "dist.all_reduce(x)") -> str:
    """As torch prints what ends a program: outermost frame first, the rank before every line."""
    frames = [("/job/train.py", 90, "<module>"), *(places or (MAIN,))]
    lines = ["Traceback (most recent call last):"]
    for file, line, name in frames:
        lines += [
            f'  File "{file}", line {line}, in {name}',
            f"    {code if (file, line, name) == frames[-1] else 'main()'}",
        ]
    lines += [f'  File "{TORCH}/distributed/distributed_c10d.py", line 3252, in {call}', "    work.wait()", error]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def stack(*places: Place, call: str | None = "all_reduce") -> str:
    """As faulthandler writes a main thread."""
    inside = [] if call is None else [(f"{TORCH}/distributed/distributed_c10d.py", 3252, call)]
    frames = [*inside, *(places or (MAIN,)), ("/job/train.py", 90, "<module>")]
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join(["Current thread 0x00007f594024cb80 (most recent call first):", *lines]) + "\n"


def torchrun_table(root: tuple[int, int], *others: tuple[int, int], stopped: Sequence[int] = ()) -> str:
    """Rank and exit code of each process. `stopped`: those that the agent sent SIGTERM to."""
    names = {-9: "SIGKILL", -15: "SIGTERM", -6: "SIGABRT", -11: "SIGSEGV"}
    lines = [
        f"W1116 02:03:37.300000 6072 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {6078 + rank} closing signal SIGTERM"
        for rank in stopped
    ]
    lines.append("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    lines += ["=" * 54, "train.py FAILED", "-" * 54, "Failures:"]
    for number, (rank, code) in enumerate(others, 1):
        lines += _row(number, rank, code, names)
    lines += ["-" * 54, "Root Cause (first observed failure):", *_row(0, *root, names), "=" * 54]
    return "\n".join(lines) + "\n"


def _row(number: int, rank: int, code: int, names: dict[int, str]) -> Iterable[str]:
    why = (
        f"Signal {-code} ({names[code]}) received by PID {6078 + rank}"
        if code < 0
        else "To enable traceback see: https://pytorch.org"
    )
    return (
        f"[{number}]:",
        "  time      : 2026-11-16_02:03:37",
        "  host      : localhost",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: {6078 + rank})",
        "  error_file: <N/A>",
        f"  traceback : {why}",
    )


def diagnose(folder: Path, files: dict[str, str]) -> Verdict:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def logs(said: dict[int, str]) -> dict[str, str]:
    return {f"log_rank_{rank}.txt": f"step 7\n{text}" for rank, text in said.items()}


def with_logs(capture: Capture, said: dict[int, list[str]]) -> Capture:
    """And a log of each of these ranks, read as if from a file: its owner, what it reports and what the program printed."""
    names = {rank: f"log_rank_{rank}.txt" for rank in said}
    read = {
        file: read_log("".join(f"{line}\n" for line in said[rank]).encode(), file, rank) for rank, file in names.items()
    }
    return replace(
        capture,
        events=(*capture.events, *(event for log in read.values() for event in log.events)),
        logs=(*capture.logs, *((file, rank) for rank, file in names.items())),
        log_ends={**capture.log_ends, **{file: log.ending for file, log in read.items()}},
        printed={file: log.printed for file, log in read.items()},
    )
