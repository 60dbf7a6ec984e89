"""Queries on a store. Everything here only reads."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Row, Select, case, func, or_, select

from forkpoint.errors import UsageError
from forkpoint.history.nodes import HostExposure
from forkpoint.history.store import HOSTS, INCIDENTS, VERDICTS, Store
from forkpoint.report.escape import escape

_DAY_S: Final = 86_400
_MAX_BARS: Final = 60
_MAX_JOBS: Final = 40
_MIN_PREFIX: Final = 4


@dataclass(frozen=True, slots=True)
class Filters:
    since: int | None = None
    """Seconds since 1970."""
    cause: str | None = None
    job: str | None = None
    host: str | None = None
    fingerprint: str | None = None


EVERYTHING: Final = Filters()


@dataclass(frozen=True, slots=True)
class ListedIncident:
    id: str
    at: int
    cause: str
    action: str
    confidence: float
    headline: str
    fingerprint: str | None
    fork: str
    job: str | None
    user: str | None
    commit: str | None
    run: str | None
    attempt: int
    world: int
    suspects: tuple[int, ...]
    gpu_hours: float | None
    resolved_at: int | None
    resolved_note: str | None
    resolved_commit: str | None


_COLUMNS: Final = {"user": "job_user", "commit": "job_commit"}
"""Fields with another name in the store."""


@dataclass(frozen=True, slots=True)
class RecurringFork:
    """Incidents with one fingerprint."""

    fingerprint: str
    cause: str
    fork: str
    count: int
    jobs: int
    first: int
    last: int
    gpu_hours: float | None
    resolved: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the chart: the incidents of one cause and one job in one period."""

    start: int
    cause: str
    job: str
    count: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class StoreTotals:
    count: int
    first: int | None
    last: int | None
    gpu_hours: float | None
    undated: int
    """Incidents whose cost is unknown."""


_LISTED: Final = tuple(
    INCIDENTS.c[_COLUMNS.get(field.name, field.name)].label(field.name) for field in fields(ListedIncident)
)


def list_incidents(store: Store, filters: Filters = EVERYTHING, limit: int | None = 50) -> list[ListedIncident]:
    """Newest first."""
    wanted = _filtered(select(*_LISTED), filters).order_by(INCIDENTS.c.at.desc(), INCIDENTS.c.id).limit(limit)
    with store.reading() as connection:
        return [_listed(row) for row in connection.execute(wanted)]


def seen_before(store: Store, fingerprint: str, but: str, limit: int = 3) -> list[ListedIncident]:
    """Earlier incidents at this fork, resolved ones first, then newest first."""
    same = (INCIDENTS.c.fingerprint == fingerprint) & (INCIDENTS.c.id != but)
    wanted = select(*_LISTED).where(same).order_by(INCIDENTS.c.at.desc()).limit(limit)
    resolved = wanted.where(INCIDENTS.c.resolved_at.is_not(None)).limit(1)
    with store.reading() as connection:
        found = [_listed(row) for row in (*connection.execute(resolved), *connection.execute(wanted))]
    return list({incident.id: incident for incident in found}.values())[:limit]


def count_seen(store: Store, fingerprint: str, but: str) -> int:
    """Counts the fork by its index and subtracts this incident: comparing each row's id would read them all."""
    fork = select(func.count()).select_from(INCIDENTS).where(INCIDENTS.c.fingerprint == fingerprint)
    with store.reading() as connection:
        own = connection.execute(fork.where(INCIDENTS.c.id == but)).scalar_one()
        return connection.execute(fork).scalar_one() - own


def find_incident(store: Store, prefix: str) -> ListedIncident:
    """By its id, or a prefix of it. Raises UsageError."""
    if len(prefix) < _MIN_PREFIX or not prefix.isalnum():
        raise UsageError(
            f"{prefix}: give an id, or at least its first {_MIN_PREFIX} characters (see forkpoint history)"
        )
    wanted = select(*_LISTED).where(INCIDENTS.c.id.startswith(prefix, autoescape=True)).limit(2)
    with store.reading() as connection:
        found = [_listed(row) for row in connection.execute(wanted)]
    if len(found) != 1:
        raise UsageError(
            f"{prefix}: {'several incidents have this prefix' if found else 'no such incident'} in {store.name}"
        )
    return found[0]


def read_document(store: Store, incident: str) -> str:
    with store.reading() as connection:
        return connection.execute(select(VERDICTS.c.document).where(VERDICTS.c.id == incident)).scalar_one()


def suspect_places(store: Store, incident: str) -> dict[str, list[int]]:
    """Hosts of suspects, and the suspects' GPUs there."""
    wanted = select(HOSTS.c.host, HOSTS.c.gpus).where(HOSTS.c.id == incident, HOSTS.c.suspect).order_by(HOSTS.c.host)
    with store.reading() as connection:
        return {row.host: json.loads(row.gpus) for row in connection.execute(wanted)}


def count_attempts(store: Store, run: str) -> int:
    """Attempts of one run that ended in an incident."""
    with store.reading() as connection:
        wanted = select(func.count(func.distinct(INCIDENTS.c.attempt))).where(INCIDENTS.c.run == run)
        return connection.execute(wanted).scalar_one()


def top_forks(store: Store, filters: Filters = EVERYTHING, limit: int = 20) -> list[RecurringFork]:
    """The most frequent first. Columns are in the order of the fields."""
    count = func.count()
    wanted = (
        _filtered(
            select(
                INCIDENTS.c.fingerprint,
                func.min(INCIDENTS.c.cause),
                func.min(INCIDENTS.c.fork),
                count,
                func.count(func.distinct(INCIDENTS.c.job)),
                func.min(INCIDENTS.c.at),
                func.max(INCIDENTS.c.at),
                func.sum(INCIDENTS.c.gpu_hours),
                func.count(INCIDENTS.c.resolved_at),
            ),
            filters,
        )
        .where(INCIDENTS.c.fingerprint.is_not(None))
        .group_by(INCIDENTS.c.fingerprint)
        .order_by(count.desc(), INCIDENTS.c.fingerprint)
        .limit(limit)
    )
    with store.reading() as connection:
        return [RecurringFork(*row) for row in connection.execute(wanted)]


def totals(store: Store, filters: Filters = EVERYTHING) -> StoreTotals:
    at, hours = INCIDENTS.c.at, INCIDENTS.c.gpu_hours
    wanted = select(func.count(), func.min(at), func.max(at), func.sum(hours), func.count() - func.count(hours))
    with store.reading() as connection:
        return StoreTotals(*connection.execute(_filtered(wanted, filters)).one())


def stamp(store: Store) -> str:
    """Changes whenever an incident is added, deleted or resolved."""
    at, resolved = func.max(INCIDENTS.c.at), INCIDENTS.c.resolved_at
    wanted = select(func.count(), func.coalesce(at, 0), func.count(resolved), func.coalesce(func.max(resolved), 0))
    with store.reading() as connection:
        return "-".join(map(str, connection.execute(wanted).one()))


def bars(store: Store, filters: Filters = EVERYTHING) -> tuple[list[Bar], int]:
    """The chart, at most 60 periods of whole days, and the length of a period in seconds. Rare jobs are grouped."""
    whole = totals(store, filters)
    days = ((whole.last or 0) - (whole.first or 0)) // _DAY_S + 1
    width = -(-days // _MAX_BARS) * _DAY_S
    job = func.coalesce(INCIDENTS.c.job, "")
    frequent = select(job.label("job")).group_by(job).order_by(func.count().desc(), job).limit(_MAX_JOBS)
    with store.reading() as connection:
        named = connection.execute(_filtered(frequent, filters)).scalars().all()
        shown = case((job.in_(named), job), else_="(others)")
        start = INCIDENTS.c.at - INCIDENTS.c.at % width
        keys = (start.label("start"), INCIDENTS.c.cause, shown.label("shown"))
        inner = _filtered(select(*keys, INCIDENTS.c.gpu_hours), filters).subquery()
        wanted = select(
            inner.c.start, inner.c.cause, inner.c.shown, func.count(), func.coalesce(func.sum(inner.c.gpu_hours), 0.0)
        )
        rows = connection.execute(wanted.group_by(inner.c.start, inner.c.cause, inner.c.shown).order_by(inner.c.start))
        return [Bar(*row) for row in rows], width


def host_exposures(store: Store) -> list[HostExposure]:
    """Every host that took part in a hardware-related incident."""
    per_event = (
        select(
            HOSTS.c.host,
            HOSTS.c.event,
            func.max(case((HOSTS.c.suspect, 1), else_=0)).label("suspected"),
            func.sum(HOSTS.c.chance).label("chance"),
            func.coalesce(func.sum(HOSTS.c.gpu_chance), 0.0).label("gpu_chance"),
        )
        .where(HOSTS.c.chance.is_not(None))
        .group_by(HOSTS.c.host, HOSTS.c.event)
        .subquery()
    )
    at_most_one = [case((column > 1, 1.0), else_=column) for column in (per_event.c.chance, per_event.c.gpu_chance)]
    by_host = select(
        per_event.c.host, func.count(), func.sum(per_event.c.suspected), *(func.sum(column) for column in at_most_one)
    ).group_by(per_event.c.host)
    suspected = select(HOSTS.c.host, HOSTS.c.event, HOSTS.c.gpus).where(HOSTS.c.suspect, HOSTS.c.chance.is_not(None))
    with store.reading() as connection:
        hosts = connection.execute(by_host).all()
        events = {(host, gpu, event) for host, event, gpus in connection.execute(suspected) for gpu in json.loads(gpus)}
    by_gpu: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for host, gpu, _ in events:
        by_gpu[host][gpu] += 1
    return [
        HostExposure(host, int(count), int(times), float(expected), float(of_gpu), by_gpu[host])
        for host, count, times, expected, of_gpu in map(tuple[Any, ...], hosts)
    ]


def _filtered(wanted: Select[*tuple[Any, ...]], filters: Filters) -> Select[*tuple[Any, ...]]:
    if filters.since is not None:
        wanted = wanted.where(INCIDENTS.c.at >= filters.since)
    if filters.cause is not None:
        wanted = wanted.where(INCIDENTS.c.cause == filters.cause)
    if filters.job is not None:
        wanted = wanted.where(or_(INCIDENTS.c.job == filters.job, INCIDENTS.c.run == filters.job))
    if filters.fingerprint is not None:
        wanted = wanted.where(INCIDENTS.c.fingerprint == filters.fingerprint)
    if filters.host is not None:
        suspect = select(HOSTS.c.id).where(HOSTS.c.host == filters.host, HOSTS.c.suspect)
        wanted = wanted.where(INCIDENTS.c.id.in_(suspect))
    return wanted


def _listed(row: Row[*tuple[Any, ...]]) -> ListedIncident:
    told: dict[str, Any] = row._asdict()
    return ListedIncident(**told | {"suspects": tuple(json.loads(row.suspects))})


# ---------------------------------------------------------------------------------------------------------------------
# Earlier incidents at the same fork, as text: when, at which commit, and how they were resolved.


_COMMIT = 10
_ID = 8


def describe_seen(earlier: Sequence[ListedIncident], count: int) -> tuple[str, ...]:
    """One line for all of them, and one for each. Escaped for a terminal."""
    if not earlier:
        return ()
    times = "once" if count == 1 else f"{count} times"
    return (f"the same fork was seen {times} before", *map(_line, earlier))


def _line(incident: ListedIncident) -> str:
    words = [day(incident.at), incident.id[:_ID]]
    words += [incident.job] if incident.job else []
    words += [f"at {incident.commit[:_COMMIT]}"] if incident.commit else []
    return escape(f"{' '.join(words)}: {describe_resolution(incident)}")


def describe_resolution(incident: ListedIncident) -> str:
    if incident.resolved_at is None:
        return "not resolved"
    told = f"resolved {day(incident.resolved_at)}"
    told += f" by {incident.resolved_commit[:_COMMIT]}" if incident.resolved_commit else ""
    return f"{told}: {incident.resolved_note}" if incident.resolved_note else told


def day(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
