"""A store holds each incident once, whoever writes it and however often, and says in one line what is wrong with it."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

import verdicts
from bench.history_jobs import plant
from bench.history_week import simulate
from bench.postgres import find_postgres, postgres
from cases import CASES, read_case
from forkpoint.errors import StoreError
from forkpoint.history.incident import JobFacts, KeptIncident, describe_incident
from forkpoint.history.keeping import keep
from forkpoint.history.nodes import weigh
from forkpoint.history.page import read_overview, render_page
from forkpoint.history.queries import (
    Filters,
    bars,
    find_incident,
    host_exposures,
    list_incidents,
    read_document,
    seen_before,
    suspect_places,
    top_forks,
    totals,
)
from forkpoint.history.store import MIGRATIONS, open_store
from forkpoint.pipeline import diagnose

WRITTEN_IN_VERSION_1 = Path(__file__).with_name("store_v1.sql")
JOB = JobFacts("pretrain", "ada", "c0ffee", "run-1")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if find_postgres() is None:
        pytest.skip("no initdb: apt-get install postgresql")
    with postgres() as url:
        yield url


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "history.sqlite")


def incident(case: str = "0001") -> KeptIncident:
    capture = read_case(case)
    found = describe_incident(diagnose(capture), capture, JOB)
    assert found
    return found


def check_whole(place: str) -> None:
    """All that is written and asked, on whatever database."""
    store = open_store(place)
    planted = [plant(number).incident for number in range(40)]
    for one in (*planted, *planted[:10]):
        store.write(one)
    assert totals(store).count == len(list_incidents(store, limit=None)) == 40
    chosen = next(one for one in planted if one.fingerprint and one.hosts)
    store.resolve(chosen.id, "guard the call", "abc")
    store.write(replace(chosen, headline="told better"))
    found = find_incident(store, chosen.id[:12])
    assert (found.headline, found.resolved_note, found.resolved_commit) == ("told better", "guard the call", "abc")
    assert list(suspect_places(store, chosen.id)) == [p.host for p in chosen.hosts if p.is_suspect]
    assert read_document(store, chosen.id) == chosen.document
    fork = top_forks(store)[0]
    same = [one for one in planted if one.fingerprint == fork.fingerprint]
    assert fork.count == len(same)
    assert len(seen_before(store, fork.fingerprint, same[0].id)) == min(3, len(same) - 1)
    assert len(list_incidents(store, Filters(fingerprint=fork.fingerprint))) == len(same)
    assert sum(bar.count for bar in bars(store)[0]) == 40
    assert weigh(host_exposures(store))
    assert fork.fingerprint in render_page(read_overview(store))
    store.delete(chosen.id)
    cut = sorted(one.at for one in planted if one.id != chosen.id)[9]
    assert store.prune(cut) == 9
    assert totals(store).count == 30
    assert {one.id for one in list_incidents(store, limit=None)} == {
        one.id for one in planted if one.at >= cut and one.id != chosen.id
    }
    store.close()


def test_sqlite_keeps_finds_resolves_and_forgets(place: str) -> None:
    check_whole(place)


def test_postgresql_keeps_finds_resolves_and_forgets(server: str) -> None:
    check_whole(server)


def test_an_incident_that_is_diagnosed_again_is_the_same() -> None:
    assert incident().id == incident().id
    assert incident("0001").id != incident("0070").id


def test_an_attempt_that_the_evidence_does_not_date_is_known_by_its_run() -> None:
    bare = replace(verdicts.FOUND, moments=())
    capture = replace(read_case("0001"), traces=read_case("0001").traces[:0])
    ids = [describe_incident(bare, capture, replace(JOB, attempt=attempt)) for attempt in (0, 1, 0)]

    assert [one.id == ids[0].id for one in ids if one and ids[0]] == [True, False, True]


def test_nothing_is_kept_of_a_healthy_job() -> None:
    capture = read_case("0001")
    healthy = replace(verdicts.FOUND, cause=type(verdicts.FOUND.cause).HEALTHY)

    assert describe_incident(healthy, capture, JOB) is None


def test_secrets_and_texts_of_evidence_stay_out_and_hosts_stay_in() -> None:
    token = "hf_" + "abcdEFGHijklMNOPqrstUVWXyz01234567"
    said = replace(verdicts.WATCHDOG, says=f"a line of the log of node-7 with {token}")
    finding = replace(verdicts.FINDING, evidence=(said,))
    told = replace(verdicts.FOUND, headline=f"Rank 0 on node-7 used {token}.", findings=(finding,))
    capture = read_case("0001")
    lean, full = (describe_incident(told, capture, JOB, with_evidence=asked) for asked in (False, True))
    assert lean
    assert full

    assert token not in lean.headline + lean.document + full.document
    assert "node-7" in lean.headline
    assert "a line of the log" not in lean.document
    assert "a line of the log" in full.document
    assert "+++ b" not in lean.document


def test_hours_lost_are_the_world_times_the_wait_and_none_where_nothing_is_dated() -> None:
    capture = read_case("0001")
    dated = describe_incident(verdicts.FOUND, capture, JOB)
    undated = describe_incident(replace(verdicts.FOUND, moments=()), capture, JOB)
    assert dated
    assert undated

    assert dated.gpu_hours == pytest.approx(4 * 20 / 3600, abs=1e-4)
    assert undated.gpu_hours is None


def test_a_store_of_version_1_opens_today(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with sqlite3.connect(file) as old:
        old.executescript(WRITTEN_IN_VERSION_1.read_text())
    old.close()
    store = open_store(str(file))

    (kept,) = list_incidents(store)
    assert (kept.cause, kept.resolved_note) == ("divergent-path", "call it on every rank")
    assert seen_before(store, kept.fingerprint or "", "") == [kept]
    store.write(incident("0070"))
    assert totals(store).count == 2
    store.close()


def test_a_later_version_takes_an_older_store_along_and_this_one_refuses_the_later(place: str) -> None:
    open_store(place).close()

    def add_column(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE incidents ADD COLUMN cluster TEXT"))

    later = (*MIGRATIONS, add_column)
    store = open_store(place, migrations=later)
    store.write(incident())
    store.close()
    open_store(place, migrations=later).close()

    with pytest.raises(StoreError, match="has version 2, and this forkpoint knows 1"):
        open_store(place)


def test_what_is_no_store_costs_a_warning_of_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("this is no database, but long enough to be read as one " * 100)
    places = [str(broken), str(tmp_path), "postgresql://nobody:hunter2@127.0.0.1:1/x", "mysql://x/y", "://"]
    for place in places:
        kept = keep(place, incident())

        assert kept.problem
        assert "the verdict is not stored" in kept.problem
        assert "\n" not in kept.problem
        assert "hunter2" not in kept.problem


def test_a_store_that_was_cut_off_in_the_middle_costs_a_warning(place: str) -> None:
    store = open_store(place)
    for number in range(30):
        store.write(plant(number).incident)
    store.close()
    file = Path(place)
    file.write_bytes(file.read_bytes()[:9000] + b"\xff" * 9000)

    assert keep(place, incident()).problem


def check_odd_names(place: str) -> None:
    told = replace(verdicts.FOUND, headline="Rank 0 of \udcff\x00\x1b[2J left.")
    job = JobFacts("a\x00b", "\udcffada", None, "run\n2")
    odd = describe_incident(told, read_case("0001"), job)
    assert odd

    assert keep(place, odd).problem is None
    store = open_store(place)
    assert list_incidents(store, Filters(job="a\\x00b"))[0].run == "run\\n2"
    with pytest.raises(StoreError):
        list_incidents(store, Filters(job="\udcff"))
    store.close()


def test_names_that_no_database_takes_are_kept_escaped(place: str) -> None:
    check_odd_names(place)


def test_names_that_postgresql_does_not_take_are_kept_escaped(server: str) -> None:
    check_odd_names(server)


def test_without_sqlalchemy_the_warning_names_the_extra(place: str) -> None:
    blocked = (
        "import sys; sys.modules['sqlalchemy'] = None\nfrom forkpoint.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    words = ["diagnose", str(CASES / "0001" / "capture"), "--no-source", "--quiet", "--store", place]
    done = subprocess.run([sys.executable, "-c", blocked, *words], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "--store needs sqlalchemy: pip install 'forkpoint[history]' (the verdict is not stored)" in done.stderr


@pytest.mark.sweep
def test_a_week_loses_and_doubles_nothing_while_writers_are_killed(tmp_path: Path, place: str) -> None:
    found = simulate(place, tmp_path, incidents=600, kill_every_s=0.5)

    assert found.is_good, found
    assert found.kills


@pytest.mark.sweep
def test_a_week_on_postgresql_loses_and_doubles_nothing(tmp_path: Path) -> None:
    if find_postgres() is None:
        pytest.skip("no initdb: apt-get install postgresql")
    with postgres() as url:
        found = simulate(url, tmp_path, incidents=600, kill_every_s=0.5)

    assert found.is_good, found
