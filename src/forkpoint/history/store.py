"""A store of incidents: a SQLite file, or a PostgreSQL database by URL.

Many processes write at once, and any may be killed: each incident is one transaction, and its id comes from its content.
SQLite uses a write-ahead log, so that readers never wait, and writers take the lock when they begin, so that two writers
wait for each other instead of failing.
"""

import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    delete,
    event,
    insert,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from forkpoint.errors import StoreError
from forkpoint.history.incident import KeptIncident
from forkpoint.report.escape import escape

# ---------------------------------------------------------------------------------------------------------------------
# The tables, and how an older store is migrated.
#
# A migration is added at the end of `MIGRATIONS` and never changed once released: existing stores have already run it.
# `TABLES` is the result of the last one.

TABLES: Final = MetaData()

VERSION: Final = Table("forkpoint_store", TABLES, Column("version", Integer, nullable=False))

INCIDENTS: Final = Table(
    "incidents",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("cause", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("symptom", Text),
    Column("confidence", Float, nullable=False),
    Column("headline", Text, nullable=False),
    Column("fingerprint", Text),
    Column("fork", Text, nullable=False),
    Column("job", Text),
    Column("job_user", Text),
    Column("job_commit", Text),
    Column("run", Text),
    Column("attempt", Integer, nullable=False),
    Column("world", Integer, nullable=False),
    Column("suspects", Text, nullable=False),
    Column("gpu_hours", Float),
    Column("resolved_at", BigInteger),
    Column("resolved_note", Text),
    Column("resolved_commit", Text),
)
"""Small rows, since lists and sums read many of them."""

VERDICTS: Final = Table(
    "verdicts", TABLES, Column("id", Text, primary_key=True), Column("document", Text, nullable=False)
)

HOSTS: Final = Table(
    "incident_hosts",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("event", BigInteger, nullable=False),
    Column("suspect", Boolean, nullable=False),
    Column("gpus", Text, nullable=False),
    Column("chance", Float),
    Column("gpu_chance", Float),
)
"""Hosts that took part. `event` identifies job and fork: attempts of one job count once. `chance`: the probability that
this host is a suspect if all were equally likely; null unless the incident is hardware-related. `gpu_chance`: the same for
one GPU."""

INDEXES: Final = (
    Index("incidents_by_time", INCIDENTS.c.at),
    Index("incidents_by_fork", INCIDENTS.c.fingerprint, INCIDENTS.c.at),
    Index(
        "incidents_resolved",
        INCIDENTS.c.fingerprint,
        INCIDENTS.c.at,
        sqlite_where=INCIDENTS.c.resolved_at.is_not(None),
        postgresql_where=INCIDENTS.c.resolved_at.is_not(None),
    ),
    Index("incidents_by_run", INCIDENTS.c.run, INCIDENTS.c.attempt),
    Index(
        "hosts_by_event",
        HOSTS.c.host,
        HOSTS.c.event,
        HOSTS.c.suspect,
        HOSTS.c.chance,
        HOSTS.c.gpu_chance,
        sqlite_where=HOSTS.c.chance.is_not(None),
        postgresql_where=HOSTS.c.chance.is_not(None),
    ),
    Index(
        "hosts_suspected", HOSTS.c.host, HOSTS.c.event, sqlite_where=HOSTS.c.suspect, postgresql_where=HOSTS.c.suspect
    ),
)


def _create(connection: Connection) -> None:
    TABLES.create_all(connection)


Migration = Callable[[Connection], None]
MIGRATIONS: Final[tuple[Migration, ...]] = (_create,)
"""The n-th migrates to version n."""

_MIGRATING: Final = 0x666F726B  # "fork": no other program's advisory lock


def version_of(connection: Connection) -> int:
    """0: empty."""
    if not connection.dialect.has_table(connection, VERSION.name):
        return 0
    return connection.execute(select(VERSION.c.version)).scalar_one_or_none() or 0


def migrate(connection: Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Inside a write transaction: of several processes that open an old store, one migrates it and the others find it done."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATING})
    version = version_of(connection)
    for step in migrations[version:]:
        step(connection)
    if version == 0:
        connection.execute(insert(VERSION).values(version=len(migrations)))
    elif version < len(migrations):
        connection.execute(update(VERSION).values(version=len(migrations)))


_BUSY_S: Final = 20.0
_CONNECT_S: Final = 5
_DRIVER: Final = "postgresql+psycopg"
_SERVERS: Final = ("postgresql", "postgres", _DRIVER)
_UPDATED: Final = [c.name for c in INCIDENTS.c if c.name != "id" and not c.name.startswith("resolved")]
"""What a later diagnosis of the same incident may correct."""
_WORDS: Final = 300


class Store:
    """Raises StoreError, with a one-line message, whatever fails."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        """For messages: without a password."""

    @contextmanager
    def reading(self) -> Generator[Connection]:
        with self._in_one_line(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        with (
            self._in_one_line(),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _in_one_line(self) -> Generator[None]:
        try:
            yield
        except (SQLAlchemyError, UnicodeError) as error:  # UnicodeError: text that cannot be encoded
            raise StoreError(f"the store {self.name} cannot be used: {_why(error)}") from error

    def write(self, incident: KeptIncident) -> None:
        """Writing again updates the incident, but not its resolution."""
        row, hosts = _row(incident), _host_rows(incident)
        kept = {"id": incident.id, "document": incident.document}
        with self.writing() as connection:
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            wanted = dialect.insert(INCIDENTS).values(row)
            connection.execute(
                wanted.on_conflict_do_update(
                    index_elements=["id"], set_={name: wanted.excluded[name] for name in _UPDATED}
                )
            )
            written = dialect.insert(VERDICTS).values(kept)
            connection.execute(
                written.on_conflict_do_update(index_elements=["id"], set_={"document": written.excluded.document})
            )
            connection.execute(delete(HOSTS).where(HOSTS.c.id == incident.id))
            if hosts:
                connection.execute(insert(HOSTS), hosts)

    def resolve(self, incident: str, note: str, commit: str | None) -> None:
        told = {
            "resolved_at": int(time.time()),
            "resolved_note": escape(note),
            "resolved_commit": escape(commit or "") or None,
        }
        with self.writing() as connection:
            connection.execute(update(INCIDENTS).where(INCIDENTS.c.id == incident).values(told))

    def delete(self, incident: str) -> None:
        with self.writing() as connection:
            for table in (HOSTS, VERDICTS, INCIDENTS):
                connection.execute(delete(table).where(table.c.id == incident))

    def prune(self, before: int) -> int:
        """Deletes older incidents and returns how many."""
        old = select(INCIDENTS.c.id).where(INCIDENTS.c.at < before)
        with self.writing() as connection:
            for table in (HOSTS, VERDICTS):
                connection.execute(delete(table).where(table.c.id.in_(old)))
            return connection.execute(delete(INCIDENTS).where(INCIDENTS.c.at < before)).rowcount


def _row(incident: KeptIncident) -> dict[str, Any]:
    job = incident.job
    return {
        "id": incident.id,
        "at": incident.at,
        "cause": incident.cause,
        "action": incident.action,
        "symptom": incident.symptom,
        "confidence": incident.confidence,
        "headline": incident.headline,
        "fingerprint": incident.fingerprint,
        "fork": incident.fork,
        "job": job.job,
        "job_user": job.user,
        "job_commit": job.commit,
        "run": job.run,
        "attempt": job.attempt,
        "world": incident.world,
        "suspects": json.dumps(incident.suspects),
        "gpu_hours": incident.gpu_hours,
    }


def _host_rows(incident: KeptIncident) -> list[dict[str, Any]]:
    suspects = [part for part in incident.hosts if part.is_suspect]
    gpus = sum(len(part.gpus) for part in suspects)
    counts = incident.concerns_hardware and bool(suspects)
    chance = len(suspects) / len(incident.hosts) if counts else None
    gpu_chance = gpus / incident.ranks_placed if counts and gpus else None
    return [
        {
            "id": incident.id,
            "host": part.host,
            "event": event_of(incident),
            "suspect": part.is_suspect,
            "gpus": json.dumps(part.gpus),
            "chance": chance,
            "gpu_chance": gpu_chance,
        }
        for part in incident.hosts
    ]


def event_of(incident: KeptIncident) -> int:
    """Attempts of one job at one fork are one event; without a job's name, each run is a job."""
    told = [incident.job.job or incident.job.run or incident.id, incident.fingerprint or incident.cause]
    return int.from_bytes(sha256(json.dumps(told).encode()).digest()[:8], signed=True)


def open_store(place: str, *, create: bool = True, migrations: tuple[Migration, ...] = MIGRATIONS) -> Store:
    """`place`: a file, or a URL. Raises StoreError, also if a newer forkpoint wrote the store."""
    url = parse_place(place)
    if url.get_backend_name() == "sqlite":
        _prepare_file(Path(url.database or ""), create=create)
    store = Store(_engine(url), url.render_as_string(hide_password=True))
    try:
        _bring_up_to_date(store, migrations)
    except StoreError:
        store.close()
        raise
    return store


def _bring_up_to_date(store: Store, migrations: tuple[Migration, ...]) -> None:
    known = len(migrations)
    with store.reading() as connection:
        version = version_of(connection)
    if version > known:
        told = f"the store {store.name} has version {version}, and this forkpoint knows {known}"
        raise StoreError(f"{told}: install a newer forkpoint")
    if version < known:
        with store.writing() as connection:
            migrate(connection, migrations)


def parse_place(place: str) -> URL:
    """Raises StoreError."""
    if "://" not in place:
        return URL.create("sqlite", database=str(Path(place).expanduser().absolute()))
    try:
        url = make_url(place)
    except (ArgumentError, ValueError) as error:
        raise StoreError("the store's URL cannot be read; it looks like postgresql://user@host/database") from error
    if url.drivername in _SERVERS:
        return url.set(drivername=_DRIVER)
    if url.drivername == "sqlite" and url.database:
        return url
    raise StoreError(f"a store is a file, sqlite:///FILE or postgresql://...; {url.drivername} is not supported")


def _prepare_file(file: Path, *, create: bool) -> None:
    if not create and not file.exists():
        raise StoreError(
            f"there is no store {file}; diagnose, run, watch, guard and attach create one with --store {file}"
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the store {file} cannot be created: {error.strerror}") from error
    if file.is_dir() or (file.exists() and not os.access(file, os.W_OK)):
        raise StoreError(f"the store {file} cannot be used: it is {'a folder' if file.is_dir() else 'not writable'}")


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_S})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_S})
    except ModuleNotFoundError as error:
        raise StoreError(
            f"a store in PostgreSQL needs {error.name}: pip install 'forkpoint[history-postgres]'"
        ) from error


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we send BEGIN ourselves, see below
    # With NORMAL a killed process loses nothing; a machine that loses power may lose its last seconds.
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: one that reads first and then asks for the lock fails immediately if another wrote
    meanwhile, whatever its timeout.
    """
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _why(error: SQLAlchemyError | UnicodeError) -> str:
    """The database's own message, on one line, without the statements and links that SQLAlchemy adds."""
    told = getattr(error, "orig", None) or error
    return " ".join(str(told).split())[:_WORDS]
