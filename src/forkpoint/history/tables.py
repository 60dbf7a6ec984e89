"""The tables of a store, and how an older store is migrated.

A migration is added at the end of `MIGRATIONS` and never changed once released: existing stores have already run it.
`TABLES` is the result of the last one.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    select,
    text,
    update,
)

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
