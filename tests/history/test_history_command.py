"""`--store` on commands that diagnose, and `forkpoint history` over what they kept."""

import csv
import io
import json
import time
from pathlib import Path

import pytest

from bench.history_jobs import plant
from cases import CASES
from forkpoint.cli import main
from forkpoint.history.queries import list_incidents
from forkpoint.history.store import open_store
from forkpoint.live.children import DecisionTask, Diagnosed, StoreTask, Task, diagnose, keep_incident

CASE = str(CASES / "0001" / "capture")
SOON_S = 300.0


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "sub" / "history.sqlite")


@pytest.fixture
def filled(place: str) -> str:
    store = open_store(place)
    for number in range(30):
        store.write(plant(number).incident)
    store.close()
    return place


def keep_case(place: str, *more: str) -> int:
    return main(["diagnose", CASE, "--no-source", "--store", place, *more])


def test_a_verdict_is_kept_once_and_says_what_was_seen_before(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert keep_case(place, "--job-name", "pretrain", "--job-commit", "1234567890abcdef") == 1
    assert keep_case(place) == 1
    assert "seen" not in capsys.readouterr().out
    store = open_store(place)
    (kept,) = list_incidents(store)
    with store.writing() as connection:  # as if it had been another run of the same program
        for table in ("incidents", "verdicts", "incident_hosts"):
            connection.exec_driver_sql(f"UPDATE {table} SET id = 'aaaaaaaaaaaa'")
    store.close()
    assert (
        main(["history", "resolve", "aaaa", "--note", "call it on all ranks", "--commit", "feed", "--store", place])
        == 0
    )

    page = Path(place).with_name("page.html")
    assert keep_case(place, "--html", str(page), "--md", str(page.with_suffix(".md"))) == 1

    out = capsys.readouterr().out
    assert "seen      the same fork was seen once before" in out
    assert "by feed: call it on all ranks" in out
    assert "call it on all ranks" in page.read_text()
    assert "Seen before" in page.with_suffix(".md").read_text()
    assert kept.fingerprint


def test_the_verdict_in_json_is_the_same_with_a_store(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep_case(place, "--json")
    with_store = capsys.readouterr().out
    main(["diagnose", CASE, "--no-source", "--json"])

    assert json.loads(with_store) == json.loads(capsys.readouterr().out)


def test_a_broken_store_costs_one_line_and_the_verdict_keeps_its_exit_code(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(place).parent.mkdir()
    Path(place).write_text("no database " * 500)

    assert keep_case(place) == 1

    out, err = capsys.readouterr()
    assert "divergent-path" in out
    assert [line for line in err.splitlines() if "store" in line] == [
        f"forkpoint: the store sqlite:///{place} cannot be used: file is not a database (the verdict is not stored)"
    ]
    assert main(["history", "--store", place]) == 3


def test_the_environment_names_a_store_and_an_empty_option_does_without(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORKPOINT_STORE", place)
    keep_case("")
    assert not Path(place).exists()
    main(["diagnose", CASE, "--no-source"])
    assert Path(place).exists()


def test_lists_come_as_text_json_and_csv(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, str] = {}
    for action in ("list", "forks", "nodes"):
        for form in ("--json", "--csv", "--limit=1000"):
            assert main(["history", action, form, "--store", filled]) == 0
            told[action + form] = capsys.readouterr().out

    assert len(told["list--limit=1000"].splitlines()) == 30
    listed = json.loads(told["list--json"])
    assert listed["schema"] == "forkpoint.history/1"
    assert len(listed["incidents"]) == 30
    assert len(list(csv.DictReader(io.StringIO(told["forks--csv"])))) == len(json.loads(told["forks--json"])["forks"])
    assert "distinct incidents it took part in" in told["nodes--limit=1000"]
    node = json.loads(told["nodes--json"])["nodes"][0]
    assert {"host", "took_part", "odds"} <= node.keys()


def test_filters_choose(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "--json", "--store", filled])
    every = json.loads(capsys.readouterr().out)["incidents"]
    main(["history", "--json", "--store", filled, "--cause", "host-stall"])
    stalls = json.loads(capsys.readouterr().out)["incidents"]
    main(["history", "--json", "--store", filled, "--job", every[0]["run"], "--since", "99999d"])

    assert [one["id"] for one in stalls] == [one["id"] for one in every if one["cause"] == "host-stall"]
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["incidents"]] == [every[0]["id"]]


def test_one_incident_is_shown_resolved_and_deleted(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    incident = plant(0).incident
    short = incident.id[:10]

    assert main(["history", "resolve", short, "--note", "=SUM(1)\x1b[2J", "--store", filled]) == 0
    assert main(["history", "show", short, "--store", filled]) == 0
    out = capsys.readouterr().out
    assert incident.headline in out
    assert "=SUM(1)\\x1b[2J" in out
    assert main(["history", "show", short, "--json", "--store", filled]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "forkpoint.verdict/1"
    main(["history", "--csv", "--store", filled])
    assert "'=SUM(1)\\x1b[2J" in capsys.readouterr().out
    assert main(["history", "delete", short, "--store", filled]) == 0
    assert main(["history", "show", short, "--store", filled]) == 2
    assert main(["history", "prune", "--older-than", "0h", "--store", filled]) == 0
    assert "29 incidents are deleted" in capsys.readouterr().err


def test_wrong_usage_says_what_to_write(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["show"], "give the id of an incident"),
        (["show", "zz"], "at least its first 4"),
        (["resolve", plant(0).incident.id], "--note TEXT"),
        (["prune"], "--older-than 180d"),
        (["nodes", "abcd"], "takes no id"),
        (["--since", "tomorrow"], "12h, 90d, 26w"),
    ):
        assert main(["history", *words, "--store", filled]) == 2
        assert told in capsys.readouterr().err
    assert main(["history", "--store", filled + "-none"]) == 3
    assert "there is no store" in capsys.readouterr().err


def test_the_child_that_diagnoses_writes_for_run_and_the_guard_writes_what_it_alarms_for(place: str) -> None:
    at_once = diagnose(Task((CASE,), decision=DecisionTask(CASE, 1), store=StoreTask(place, "run-7", 2)))
    later = diagnose(Task((str(CASES / "0070" / "capture"),), store=StoreTask(place, write=False)))
    assert isinstance(at_once, Diagnosed)
    assert isinstance(later, Diagnosed)
    assert at_once.incident is None
    store = open_store(place)
    assert [(one.run, one.attempt) for one in list_incidents(store)] == [("run-7", 2)]

    assert later.incident
    keep_incident(place, later.incident | {"headline": "as the guard tells it"})
    keep_incident(place, later.incident | {"headline": "as the guard tells it"})

    until = time.monotonic() + SOON_S
    while len(found := list_incidents(store)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    store.close()
    assert sorted(one.headline == "as the guard tells it" for one in found) == [False, True]
