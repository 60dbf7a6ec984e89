"""`forkpoint watch` as a program: exit codes, lines, metrics, the page, and its end."""

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from sqlalchemy import update

from forkpoint.cli import main
from forkpoint.history.queries import list_incidents
from forkpoint.history.store import INCIDENTS, open_store
from forkpoint.live.watch import look
from looping import for_each
from small_jobs import T0, SmallJob
from watch.others import hooked
from watch.test_sources import WATCHDOG

SCHEMA = Draft202012Validator(json.loads(Path(look.__file__).with_name("watch.schema.json").read_text()))
PATIENCE_S = 800
HOUR_S = 3600


def write_dumps(job: SmallJob, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for rank in range(job.world):
        dump = folder / f"nccl_trace_rank_{rank}"
        dump.write_bytes(job.dump(rank))
        os.utime(dump, (T0 / 1e9 + HOUR_S,) * 2)
    return folder


def healthy() -> SmallJob:
    job = SmallJob(4)
    job.op()
    return job


def differing() -> SmallJob:
    job = healthy()
    job.op([0, 1, 3], done=False)
    job.op([2], name="all_gather", line=12, done=False)
    return job


def stuck() -> SmallJob:
    job = healthy()
    job.op([0, 1], done=False)
    return job


@for_each(("job", "code", "state"), [(healthy(), 0, "waiting"), (differing(), 1, "found"), (stuck(), 4, "found")])
def test_once_ends_with_the_code_of_diagnose(
    job: SmallJob, code: int, state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files were written an hour after the last op in them."""
    folder = write_dumps(job, tmp_path / "dumps")

    assert main(["watch", str(folder), "--once", "--every", "0.01", "--json", "--keep", str(tmp_path / "kept")]) == code
    line = json.loads(capsys.readouterr().out)
    SCHEMA.validate(line)
    assert line["state"] == state
    assert (line["verdict"] is None) == (state != "found")


def test_an_alarm_is_kept_and_the_webhook_hears_of_earlier_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, place = write_dumps(differing(), tmp_path / "dumps"), str(tmp_path / "history.sqlite")
    words = ["watch", str(folder), "--once", "--every", "0.01", "--store", place, "--job-name", "pretrain"]
    assert main(words) == 1
    store = open_store(place)
    (kept,) = list_incidents(store)
    with store.writing() as connection:  # as if it had been another run
        connection.execute(update(INCIDENTS).values(id="of-another-run"))
    store.resolve("of-another-run", "call it on every rank", None)
    store.close()
    capsys.readouterr()

    with hooked([200]) as (url, heard):
        monkeypatch.setenv("FORKPOINT_WEBHOOK_URL", url)
        assert main([*words, "--notify", "webhook"]) == 1

    assert kept.job == "pretrain"
    assert "the same fork was seen once before" in capsys.readouterr().out
    ((_, told),) = heard
    assert "call it on every rank" in json.loads(told)["seen_before"][1]


def test_once_with_nothing_to_read_says_why_and_is_unreadable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path), "--worker", "127.0.0.1:1", "--once", "--every", "0.01"]) == 3
    told = capsys.readouterr().out
    assert "blind" in told
    assert "Connection refused" in told


@for_each(
    "options",
    [
        [],
        ["--worker", "a"],
        ["--debug-server", "a:1", "--worker", "a:1"],
        ["--every", "0", "x"],
        ["x", "--notify", "a"],
    ],
)
def test_wrong_usage_is_told_before_anything_is_looked_at(options: list[str]) -> None:
    assert main(["watch", *options]) == 2


@contextlib.contextmanager
def watching(*options: str, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "forkpoint", "watch", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | environ,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def get(url: str, path: str | None = None, **headers: str) -> str:
    _, host, port, rest = re.findall(r"(http)://([\d.]+):(\d+)(/\S*)", url)[0]
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", path or rest, headers=headers)
        return connection.getresponse().read().decode()


def line_with(text: str, process: "subprocess.Popen[str]") -> str:
    assert process.stderr
    return next(line for line in process.stderr if text in line)


def test_a_watch_tells_of_an_incident_everywhere_and_ends_in_order(tmp_path: Path) -> None:
    log, told, kept = tmp_path / "rank_3.log", tmp_path / "told", tmp_path / "kept"
    log.write_text("step 1\n")
    command = shlex.join([sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write('told')", str(told)])
    with (
        hooked([]) as (url, heard),
        watching(
            *(str(log), "--every", "0.2", "--json", "--keep", str(kept), "--metrics", "0", "--serve", "0"),
            *("--notify", "webhook", "--notify", "command", "--notify", "pagerduty"),
            FORKPOINT_WEBHOOK_URL=url,
            FORKPOINT_NOTIFY_COMMAND=command,
            FORKPOINT_PAGERDUTY_KEY="0" * 32,
        ) as process,
    ):
        metrics = line_with("metrics", process)
        page = line_with("shown at", process)
        assert process.stdout
        first = json.loads(process.stdout.readline())
        with log.open("a") as file:
            file.write(WATCHDOG)
        lines = [first]
        while not lines[-1]["is_alarm"]:
            lines.append(json.loads(process.stdout.readline()))
        deadline = time.monotonic() + PATIENCE_S
        while 'forkpoint_watch_state{state="found"} 1.0' not in (scraped := get(metrics)):
            assert time.monotonic() < deadline
        token = page.rpartition("=")[2].strip()
        port = re.findall(r":(\d+)/", page)[0]
        while "/incidents/" not in (shown := get(page, "/", Cookie=f"forkpoint-{port}={token}")):
            assert time.monotonic() < deadline
        while not lines[-1]["notes"]:
            lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)  # reads on: a full pipe would hold it
        assert process.returncode == 0

    (note,) = lines[-1]["notes"]
    assert "pagerduty: not notified, the verdict is not decided" in note["text"]
    for line in lines:
        SCHEMA.validate(line)
    assert (lines[0]["state"], lines[-1]["state"]) == ("waiting", "found")
    assert lines[-1]["verdict"]["symptom"] == "watchdog-timeout"
    assert lines[-1]["evidence"] == str(kept / "found" / "0001")
    assert [json.loads(body)["schema"] for _, body in heard] == ["forkpoint.verdict/1"]
    assert told.read_text() == "told"
    assert 'forkpoint_alarms_total{cause="inconclusive"} 1.0' in scraped
    assert "rank=" not in scraped
    assert ">0001<" in shown


def test_a_watch_on_a_terminal_or_not_prints_only_what_changed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = write_dumps(differing(), tmp_path / "dumps")
    with watching(str(folder), "--every", "0.1") as process:
        assert process.stdout
        begun = process.stdout.readline()
        found = next(line for line in process.stdout if "found" in line)
        report = next(line for line in process.stdout if line.startswith("files"))
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0

    assert "waiting: no progress seen yet; 4 of 4 ranks answer" in begun
    assert "Rank 2 called all_gather at train.py:12 while the other 3 called all_reduce" in found
    assert "--keep DIR" in report
    assert rest == ""
