"""A store of 100,000 incidents: python -m bench.history [--incidents 100000] [--postgres]

What one more insert, the look-up of a fingerprint, the list and the page cost, each the median and the worst of several, with
a year of incidents over 300 hosts. SQLite in a file; with --postgres a server of its own on this machine.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sqlalchemy import insert

from bench.history_jobs import START, plant
from bench.postgres import postgres
from forkpoint.history.incident import KeptIncident
from forkpoint.history.page import read_overview, render_page
from forkpoint.history.queries import count_seen, list_incidents, seen_before, top_forks
from forkpoint.history.store import HOSTS, INCIDENTS, VERDICTS, Store, _host_rows, _row, open_store

_KINDS = 2000
"""Incidents that are made in full; the others are these at other times, in other jobs."""
_BATCH = 2000
_YEAR_S = 365 * 86_400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--postgres", action="store_true")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = stack.enter_context(postgres()) if args.postgres else str(Path(folder, "year.sqlite"))
        store = open_store(place)
        kinds = [plant(number).incident for number in range(min(_KINDS, args.incidents))]
        _fill(store, kinds, args.incidents)
        print(f"{'PostgreSQL' if args.postgres else 'SQLite'}, {args.incidents} incidents")
        _measure_all(store, kinds, args.incidents)
        store.close()


def _made(kinds: list[KeptIncident], numbers: range) -> Iterator[KeptIncident]:
    for number in numbers:
        kind = kinds[number % len(kinds)]
        job = replace(kind.job, job=f"job-{number % 4000}", run=f"run-{number}")
        yield replace(kind, id=f"{number:024x}", at=START + number * 7919 % _YEAR_S, job=job)


def _fill(store: Store, kinds: list[KeptIncident], incidents: int) -> None:
    """In batches: how long that takes is not what is measured."""
    for first in range(0, incidents, _BATCH):
        made = list(_made(kinds, range(first, min(first + _BATCH, incidents))))
        with store.writing() as connection:
            connection.execute(insert(INCIDENTS), [_row(one) for one in made])
            connection.execute(insert(VERDICTS), [{"id": one.id, "document": one.document} for one in made])
            connection.execute(insert(HOSTS), [row for one in made for row in _host_rows(one)])


def _measure_all(store: Store, kinds: list[KeptIncident], incidents: int) -> None:
    more = iter(_made(kinds, range(incidents, incidents + 300)))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    _measure("insert of one", 200, lambda: store.write(next(more)))
    key = top_forks(store, limit=1)[0].fingerprint
    _measure("look-up of a fingerprint", 100, lambda: (seen_before(store, key, ""), count_seen(store, key, "")))
    rare = next(one.fingerprint for one in kinds if one.fork.count("only_"))
    assert rare is not None
    _measure("look-up of a rare one", 100, lambda: (seen_before(store, rare, ""), count_seen(store, rare, "")))
    _measure("list of the newest 50", 20, lambda: list_incidents(store))
    _measure("page", 5, lambda: render_page(read_overview(store)))
    print(f"size of the page: {len(render_page(read_overview(store))) / 1e6:.2f} MB")


def _measure(what: str, times: int, work: Callable[[], object]) -> None:
    work()
    took: list[float] = []
    used = time.process_time()
    for _ in range(times):
        begun = time.perf_counter()
        work()
        took.append((time.perf_counter() - begun) * 1000)
    own = (time.process_time() - used) * 1000 / times
    print(
        f"{what}: median {statistics.median(took):.1f} ms, worst {max(took):.1f} ms of {times}; processor {own:.1f} ms"
    )


if __name__ == "__main__":
    main()
