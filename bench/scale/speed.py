"""How fast dumps are read, beside a plain read of the same files: `python -m bench.scale.speed FOLDER`."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from forkpoint.evidence.reading import Reading


@dataclass(frozen=True, slots=True)
class Speed:
    """Megabytes per second: of CPU time from a warm cache, of the clock from a cold one."""

    plain_warm: float
    decode_warm: float
    plain_cold: float
    decode_cold: float


def measure_speed(folder: Path) -> Speed:
    files = sorted(folder.iterdir())
    size = sum(file.stat().st_size for file in files) / 1e6
    _plain(files)
    warm = [size / _seconds(work, files, time.process_time) for work in (_plain, _decode)]
    cold: list[float] = []
    for work in (_plain, _decode):
        _forget(files)
        cold.append(size / _seconds(work, files, time.perf_counter))
    return Speed(*warm, *cold)


def _seconds(work: Callable[[list[Path]], None], files: list[Path], clock: Callable[[], float]) -> float:
    start = clock()
    work(files)
    return clock() - start


def _plain(files: list[Path]) -> None:
    for file in files:
        file.read_bytes()


def _decode(files: list[Path]) -> None:
    reading = Reading()
    for file in files:
        reading.add_dump(str(file), file.read_bytes())


def _forget(files: list[Path]) -> None:
    """Out of the page cache: clean pages only, so they are written first."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    print(json.dumps(asdict(measure_speed(Path(sys.argv[1])))))
