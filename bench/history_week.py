"""A week of a fleet, in short: python -m bench.history_week [--incidents 2000] [--postgres]

2,000 incidents over 300 hosts, with five forks that recur, two bad GPUs and noise, are written by eight processes at once while
two others read; one writer is killed with -9 every second and begins again where it was not sure. Then the store must hold each
incident once, name both bad GPUs before every innocent node, and know the five forks as five.
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from sqlalchemy import func, select

from bench.history_jobs import BAD, FORKS, Planted, plant
from bench.postgres import postgres
from forkpoint.history.nodes import NodeOdds, weigh
from forkpoint.history.queries import Filters, host_exposures, list_incidents, seen_before, top_forks, totals
from forkpoint.history.store import HOSTS, VERDICTS, open_store

_WRITERS = 8
_READERS = 2
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Outcome:
    incidents: int
    lost: int
    doubled: int
    """Rows of any table beyond what was written."""
    kills: int
    reads: int
    reader_errors: tuple[str, ...]
    nodes: tuple[NodeOdds, ...]
    """The first five."""
    bad_on_top: bool
    forks_whole: int
    """Of the five, those that are one fingerprint with all their incidents and no other."""
    seconds: float

    @property
    def is_good(self) -> bool:
        kept = not (self.lost or self.doubled or self.reader_errors)
        return kept and self.bad_on_top and self.forks_whole == len(FORKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incidents", type=int, default=2000)
    parser.add_argument("--kill-every", type=float, default=1.0, metavar="S")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own instead of a SQLite file")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = stack.enter_context(postgres()) if args.postgres else str(Path(folder, "week.sqlite"))
        found = simulate(place, Path(folder), args.incidents, args.kill_every, args.seed)
    print(
        f"{'PostgreSQL' if args.postgres else 'SQLite'}: {found.incidents} incidents in {found.seconds:.0f} s, {_WRITERS} writers, "
        f"{found.kills} killed, {found.reads} reads: {found.lost} lost, {found.doubled} doubled, {len(found.reader_errors)} errors of readers"
    )
    for error in found.reader_errors[:3]:
        print(f"  {error}")
    print(f"forks that are one: {found.forks_whole} of {len(FORKS)}; bad GPUs on top: {found.bad_on_top}")
    for node in found.nodes:
        print(
            f"  {node.name}: {node.best.suspected} of {node.took_part}, {node.best.expected:.1f} expected, odds {node.best.odds:.1e}"
        )
    sys.exit(0 if found.is_good else 1)


def simulate(place: str, folder: Path, incidents: int, kill_every_s: float, seed: int = 1) -> Outcome:
    begun = time.monotonic()
    open_store(place).close()
    over = _FORK.Event()
    readers = [_start(_read, place, folder / f"reader-{n}", over) for n in range(_READERS)]
    kills = _write_all(place, folder, incidents, kill_every_s, seed)
    over.set()
    for reader in readers:
        reader.join()
    told = [line for n in range(_READERS) for line in (folder / f"reader-{n}").read_text().splitlines()]
    errors = tuple(line for line in told if not line.isdecimal())
    reads = sum(int(line) for line in told if line.isdecimal())
    return _check(place, [plant(n, seed) for n in range(incidents)], kills, reads, errors, time.monotonic() - begun)


def _write_all(place: str, folder: Path, incidents: int, kill_every_s: float, seed: int) -> int:
    """How often a writer was killed."""
    shares = [range(first, incidents, _WRITERS) for first in range(_WRITERS)]
    writers = {n: _start(_write, place, shares[n], folder / f"sure-{n}", seed) for n in range(_WRITERS)}
    chance, kills, due = random.Random(seed), 0, time.monotonic() + kill_every_s
    while writers:
        time.sleep(0.01)
        for n, writer in list(writers.items()):
            if writer.exitcode == 0:
                del writers[n]
            elif writer.exitcode is not None:
                if writer.exitcode != -signal.SIGKILL:
                    raise RuntimeError(f"writer {n} failed by itself, with exit code {writer.exitcode}")
                writers[n] = _start(_write, place, shares[n], folder / f"sure-{n}", seed)
        if writers and time.monotonic() > due:
            victim = writers[chance.choice(list(writers))]
            if victim.pid and victim.exitcode is None:
                os.kill(victim.pid, signal.SIGKILL)
                kills += 1
            due = time.monotonic() + kill_every_s
    return kills


def _start(target: object, *args: object) -> BaseProcess:
    process = _FORK.Process(target=target, args=args)  # type: ignore[arg-type] - one of ours
    process.start()
    return process


def _write(place: str, share: range, sure: Path, seed: int) -> None:
    """What is sure is in a file; of the last one nobody knows, so it is written again."""
    done = len(sure.read_bytes()) if sure.exists() else 0
    store = open_store(place)
    with sure.open("ab", buffering=0) as marks:
        for number in share[done:]:
            store.write(plant(number, seed).incident)
            marks.write(b".")
    store.close()


def _read(place: str, told: Path, over: Event) -> None:
    store, reads = open_store(place), 0
    with told.open("w", encoding="utf-8") as out:
        while not over.is_set():
            try:
                forks = top_forks(store, limit=5)
                weigh(host_exposures(store))
                list_incidents(store, Filters(cause="gpu-stall"))
                if forks:
                    seen_before(store, forks[0].fingerprint, "")
                reads += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                out.write(f"{error!r}\n")
        out.write(f"{reads}\n")


def _check(
    place: str, planted: list[Planted], kills: int, reads: int, errors: tuple[str, ...], seconds: float
) -> Outcome:
    store = open_store(place)
    listed = list_incidents(store, limit=None)
    kept, true = Counter(one.id for one in listed), {one.incident.id: one for one in planted}
    with store.reading() as connection:
        documents = connection.execute(select(func.count()).select_from(VERDICTS)).scalar_one()
        hosts = connection.execute(select(func.count()).select_from(HOSTS)).scalar_one()
    expected_hosts = sum(len(one.incident.hosts) for one in true.values())
    extra = [totals(store).count - len(true), documents - len(true), hosts - expected_hosts]
    nodes = weigh(host_exposures(store))
    groups: dict[str | None, set[int | None]] = {}
    for one in listed:
        groups.setdefault(one.fingerprint, set()).add(true[one.id].fork if one.id in true else None)
    by_fork = [[key for key, forks in groups.items() if fork in forks] for fork in range(len(FORKS))]
    store.close()
    return Outcome(
        incidents=len(planted),
        lost=len(true.keys() - kept.keys()) + sum(-n for n in extra if n < 0),
        doubled=sum(n for n in extra if n > 0),
        kills=kills,
        reads=reads,
        reader_errors=errors,
        nodes=nodes[:5],
        bad_on_top={node.name for node in nodes[: len(BAD)]} == {f"{host} GPU {gpu}" for host, gpu in BAD},
        forks_whole=sum(len(keys) == 1 and groups[keys[0]] == {fork} for fork, keys in enumerate(by_fork)),
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
