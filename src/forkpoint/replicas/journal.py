"""A file of JSON lines per rank: what was compared, up to which step all was equal, and what was not."""

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from forkpoint.replicas.report import Mismatch, Report

SCHEMA = "forkpoint.replicas/1"
_FOLDER = "FORKPOINT_REPLICAS_DIR"
_EQUAL_EVERY_S = 60.0
"""Between two lines that say only that all is equal."""


class Journal:
    """Written line by line: what is said survives the process."""

    def __init__(self, folder: str | None, rank: int) -> None:
        self._path = Path(folder or os.environ.get(_FOLDER) or "forkpoint-replicas") / f"replicas_rank_{rank}.jsonl"
        self._rank = rank
        self._said: set[tuple[object, ...]] = set()
        self._equal_at: float | None = None
        self._unsaid: Report | None = None
        self._since: int | None = None

    def start(self, world: int, device: str, every: int) -> None:
        self.write("start", {"world": world, "host": socket.gethostname(), "device": device, "every": every})

    def tell(self, report: Report) -> None:
        if report.equal:
            self._tell_equal(report)
            return
        self.flush()
        for found in report.mismatches:
            place = (found.what, found.tensor, found.ranks, found.odd)
            if place not in self._said:
                self._said.add(place)
                self.write("mismatch", _mismatch(found, report))
        self._since = None

    def flush(self) -> None:
        """The last step at which all was equal, if it has not been said."""
        if self._unsaid is not None:
            self._write_equal(self._unsaid)

    def write(self, record: str, fields: Mapping[str, object]) -> None:
        heading = {"schema": SCHEMA, "record": record, "time": round(time.time(), 3), "rank": self._rank}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(heading | dict(fields)) + "\n")

    def _tell_equal(self, report: Report) -> None:
        if self._since is None:
            self._since = report.step
        self._unsaid = report
        if self._equal_at is None or time.monotonic() - self._equal_at > _EQUAL_EVERY_S:
            self._write_equal(report)

    def _write_equal(self, report: Report) -> None:
        groups = [{"ranks": one.ranks, "tensors": one.tensors, "bytes": one.bytes} for one in report.compared]
        self.write("equal", {"step": report.step, "since": self._since, "groups": groups})
        self._equal_at, self._unsaid = time.monotonic(), None


def _mismatch(found: Mismatch, report: Report) -> dict[str, object]:
    return {
        "step": report.step,
        "ranks": found.ranks,
        "what": found.what,
        "tensor": found.tensor,
        "checksums": {
            str(rank): f"{number % (1 << 64):x}" for rank, number in zip(found.ranks, found.checksums, strict=True)
        },
        "odd": found.odd,
        "kind": found.kind,
        "why": found.why,
        "last_equal": report.last_equal,
        "more": report.more,
    }
