"""Small jobs written to disk as real files: dumps, logs with NCCL's and the watchdog's lines, kernel messages."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Verdict
from small_jobs import T0, SmallJob

TIMEOUT_S = 20
STEP_S = 60
"""Between ops: runs are long against what clocks differ by."""
HEADER = "[rank{rank}]:[E{stamp}.123456789 ProcessGroupNCCL.cpp:{line}] "


def glog(second: float) -> str:
    """As c10 prints it: month times 100 plus day, no year."""
    moment = datetime.fromtimestamp(int(second), UTC)
    return f"{moment.month * 100 + moment.day} {moment:%H:%M:%S}"


@dataclass
class WrittenJob:
    """Ranks that did `done` ops together; then those in `waiting` issue one more, and time out in it."""

    folder: Path
    world: int = 4
    done: int = 10
    hosts: tuple[str, ...] = ("node-1",)
    """Rank r runs on hosts[r * len(hosts) // world], on a GPU of its own."""
    skew_s: dict[str, int] = field(default_factory=dict)
    """By how much a host's clock is ahead."""
    zone_s: int = 0
    start_s: int = T0 // 10**9

    def host(self, rank: int) -> str:
        return self.hosts[rank * len(self.hosts) // self.world]

    def bus(self, rank: int) -> str:
        return f"{0x10 + rank:02x}000"

    def pid(self, rank: int) -> int:
        return 4000 + rank

    @property
    def hang_s(self) -> int:
        return self.start_s + self.done * STEP_S

    def local(self, rank: int, second: float) -> float:
        return second + self.skew_s.get(self.host(rank), 0) + self.zone_s

    def write_dumps(self, ranks: tuple[int, ...], waiting: tuple[int, ...] | None = None) -> None:
        job = SmallJob(self.world, timeout_ms=TIMEOUT_S * 1000)
        for _ in range(self.done):
            job.op()
        job.op(waiting, done=False)
        for rank in ranks:
            for entry in job.entries[rank]:
                second = self.start_s + entry["record_id"] * STEP_S + self.skew_s.get(self.host(rank), 0)
                entry["time_created_ns"] = second * 10**9
                if entry["time_discovered_completed_ns"]:
                    entry["time_discovered_completed_ns"] = second * 10**9 + 10**8
            (self.folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))

    def write_log(self, rank: int, *lines: str, times_out: bool = True, placed: bool = True) -> None:
        said = [self._settings(rank), *([self._init(rank)] if placed else [])]
        if times_out:
            second = self.local(rank, self.hang_s + TIMEOUT_S)
            said.append(
                HEADER.format(rank=rank, stamp=glog(second), line=689)
                + f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={self.done + 1}, "
                f"OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)={TIMEOUT_S * 1000}) ran for {TIMEOUT_S * 1000} "
                "milliseconds before timing out."
            )
            said.append(
                HEADER.format(rank=rank, stamp=glog(second + 1), line=1628)
                + f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] ProcessGroupNCCL preparing to dump debug info. Include "
                "stack trace: 1, only active collectives: 0"
            )
        (self.folder / f"log_rank_{rank}.txt").write_text("".join(f"{line}\n" for line in (*said, *lines)))

    def write_kernel(self, *messages: str, second: float | None = None, host: str = "node-1") -> None:
        """As journalctl prints it, in the time of that host; without one as plain dmesg, in seconds since boot."""
        when = "" if second is None else f"{datetime.fromtimestamp(int(second + self.zone_s), UTC):%b %d %H:%M:%S} "
        front = f"{when}{host} kernel: " if when else "[ 1234.567890] "
        (self.folder / f"kern_{host}.log").write_text("".join(f"{front}{message}\n" for message in messages))

    def _settings(self, rank: int) -> str:
        """At INFO level, which also tells of an end in order."""
        return (
            f"[I{glog(self.local(rank, self.start_s - 1))}.123456789 ProcessGroupNCCL.cpp:988] [PG ID 0 PG GUID 0 Rank "
            f"{rank}] ProcessGroupNCCL initialization options: size: {self.world}, global rank: {rank}, TIMEOUT(ms): "
            f"{TIMEOUT_S * 1000}, USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0, SPLIT_COLOR: -2, PG Name: 0"
        )

    def _init(self, rank: int) -> str:
        pid = self.pid(rank)
        return (
            f"{self.host(rank)}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x48ee0840 rank {rank} nranks "
            f"{self.world} cudaDev 0 nvmlDev {rank} busId {self.bus(rank)} commId 0xc0c3bdb52e03e3d6 - Init START"
        )

    def diagnose(self) -> Verdict:
        return forkpoint.diagnose(forkpoint.read([str(self.folder)]))


def xid(rank: int, code: int, text: str = "GPU has fallen off the bus.", pid: int | None = None) -> str:
    """On the GPU of that rank in a `WrittenJob`."""
    named = f"pid={pid}, name=python, " if pid else ""
    return f"NVRM: Xid (PCI:0000:{0x10 + rank:02x}:00): {code}, {named}{text}"
