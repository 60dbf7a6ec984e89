"""What redaction costs, in MB per second of processor time: python -m bench.redact [--mb 40]

Logs of three sorts: a training log of few kinds of lines, NCCL's INFO lines, and lines of which no two are alike; then the
whole command over the first two. Compare two trees by running this in both, in turn, on the same machine.
"""

import argparse
import io
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from forkpoint.gather.bundle import BundleOrder, make_bundle
from forkpoint.redact import Redactor
from forkpoint.redact.logs import Lines, pieces

_WORDS = Path(__file__).with_name("redact.py").read_text(encoding="utf-8").split()
_ROUNDS = 3
_WATCHDOG = (
    "[rank0]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000) ran for 20019 milliseconds before timing out.\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=40, help="size of each log")
    args = parser.parse_args()
    size = args.mb << 20
    for name, line in (("training log", _step), ("NCCL's INFO lines", _nccl), ("no two lines alike", _unlike)):
        log = _log(line, size if line is not _unlike else size // 4)
        print(f"{name:20} {_best(log):7.1f} MB/s")
    print(f"{'the whole command':20} {_whole(size * 2):7.1f} MB/s")


def _log(line: Callable[[random.Random, int], str], size: int) -> bytes:
    draw, out, number = random.Random(1), io.StringIO(), 0
    while out.tell() < size:
        out.write(line(draw, number))
        number += 1
    return out.getvalue().encode()


def _step(draw: random.Random, number: int) -> str:
    rare = (f" from 10.9.{number % 200}.{number % 250}", f" at /home/ann{number % 9}/run/train.py", " of gpu-7")
    away = rare[number // 170 % 3] if number % 170 == 0 else ""
    return f"[rank{number % 8}]: 2026-11-15 01:{number % 60:02d}:27,{number % 1000:03d} INFO step {number} loss {draw.random():.6f} lr {draw.random():.3e} grad_norm {draw.random():.4f} tokens/s {draw.randrange(10**6)}{away}\n"


def _nccl(draw: random.Random, number: int) -> str:
    host = f"gpu-{number // 50 % 8}:{4000 + number % 8}:{4100 + number % 8} [{number % 8}] NCCL INFO "
    said = (
        f"Channel {number % 24:02d}/0 : {number % 8}[{number % 8}] -> {draw.randrange(8)}[{draw.randrange(8)}] via P2P/CUMEM/read",
        f"comm 0x{draw.randrange(1 << 44):x} rank {number % 8} nRanks 8 nNodes 1 localRanks 8 localRank {number % 8} MNNVL 0",
        f"AllReduce: opCount {draw.randrange(1 << 16):x} sendbuff 0x{draw.randrange(1 << 47):x} recvbuff 0x{draw.randrange(1 << 47):x} count {draw.randrange(10**8)} datatype 9 op 0 root 0 comm 0x{draw.randrange(1 << 44):x} [nranks=8] stream 0x{draw.randrange(1 << 44):x}",
        f"Trees [{number % 24}] 1/-1/-1->0->-1 [{number % 23}] 2/-1/-1->1->0",
    )
    return host + said[number % len(said)] + "\n"


def _unlike(draw: random.Random, number: int) -> str:
    words = " ".join(draw.choice(_WORDS) + draw.choice(_WORDS)[:4] for _ in range(12))
    return f"2026-11-15 01:18:27 {words} {number}\n"


def _best(log: bytes) -> float:
    """The best of a few rounds: what else runs on the machine only slows it down."""
    taken: list[float] = []
    for _ in range(_ROUNDS):
        lines = Lines(Redactor([f"gpu-{n}" for n in range(8)], ("ann1",)))
        began = time.process_time()
        for _done in _redacted(lines, log):
            pass
        taken.append(time.process_time() - began)
    return len(log) / min(taken) / 1e6


def _redacted(lines: Lines, log: bytes) -> Iterator[bytes]:
    return (lines.redact(piece) for piece in pieces(io.BytesIO(log)))


def _whole(size: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        evidence = Path(folder) / "evidence"
        evidence.mkdir()
        (evidence / "log_rank_0.txt").write_bytes(_log(_step, size) + _WATCHDOG.encode())
        (evidence / "nccl_rank_0.log").write_bytes(_log(_nccl, size // 4))
        there = sum(file.stat().st_size for file in evidence.iterdir())
        began = time.process_time()
        make_bundle(BundleOrder((str(evidence),), str(Path(folder) / "t.tar.gz"), str(Path(folder) / "t.map.json")))
        return there / (time.process_time() - began) / 1e6


if __name__ == "__main__":
    main()
