"""`--notify` of the commands: told before the work what is missing, one line when it fails, the exit code of the verdict."""

import sys
from pathlib import Path

import pytest

from docs.build import DOCS
from forkpoint.cli import main
from forkpoint.cli.destinations import NAMES
from forkpoint.live.children import Decision
from forkpoint.live.run.attempt import Attempt, claim_telling
from forkpoint.live.run.job import JobEnd
from forkpoint.sinks.services import SINKS
from looping import for_each
from run.wrapped import python, start
from sinks.stand_ins import SECRET, unused_address, web_service
from watch.test_command import differing, write_dumps


@pytest.fixture
def dumps(tmp_path: Path) -> str:
    return str(write_dumps(differing(), tmp_path / "dumps"))


def test_the_names_of_the_option_are_the_services_there_are() -> None:
    assert tuple(sink.name for sink in SINKS) == NAMES


def test_the_page_names_every_service_with_all_its_variables() -> None:
    page = (DOCS / "sinks.md").read_text()

    assert [sink.name for sink in SINKS if f"| `{sink.name}` |" not in page] == []
    assert [v.name for sink in SINKS for v in sink.variables if f"`{v.name}`" not in page] == []


def test_a_verdict_is_told_and_one_that_cannot_be_is_a_line_without_the_secret(
    dumps: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORKPOINT_SLACK_URL", f"http://{unused_address()}/{SECRET}")
    with web_service() as service:
        monkeypatch.setenv("FORKPOINT_WEBHOOK_URL", service.url)
        words = ["diagnose", dumps, "--notify", "webhook", "--notify", "slack", "--job-name", "pretrain"]
        assert main([*words, "--notify-timeout", "20"]) == 1

    said = capfd.readouterr()
    (told,) = service.heard
    assert told.json["suspects"] == [2]
    assert "forkpoint: webhook: notified\n" in said.err
    assert said.err.count("forkpoint: slack: could not be notified (") == 1
    assert said.err.splitlines()[-1].startswith("VERDICT v1 cause=divergent-path")
    assert SECRET not in said.out + said.err


def test_a_dry_run_sends_nothing_and_needs_no_keys(dumps: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", dumps, "--notify", "teams", "--notify", "email", "--notify-dry-run", "--json"]) == 1

    said = capfd.readouterr()
    assert said.out.startswith("{")
    assert "--- teams: a card in a Microsoft Teams channel\n{" in said.err
    assert "Subject: forkpoint: Rank 2 called" in said.err


@for_each(
    ("words", "environ", "says"),
    [
        (["--notify", "slack"], {}, "FORKPOINT_SLACK_URL is not set (the address of the incoming webhook)"),
        (["--notify", "slak"], {}, "did you mean slack?"),
        ([], {"FORKPOINT_NOTIFY": "pigeon"}, "FORKPOINT_NOTIFY: pigeon is not one of"),
        ([], {"FORKPOINT_NOTIFY": "email"}, "separated by commas), FORKPOINT_SMTP_HOST is not set"),
        (
            ["--notify", "github"],
            {"GITHUB_TOKEN": ""},
            "none of FORKPOINT_GITHUB_TOKEN, GITHUB_TOKEN, FORKPOINT_GITHUB_FILE",
        ),
        (["--notify-dry-run"], {}, "give a service"),
    ],
)
def test_what_is_missing_is_said_before_the_work(
    words: list[str],
    environ: dict[str, str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert main(["diagnose", "/nowhere", *words]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_client_that_is_not_installed_is_said_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setitem(sys.modules, "mlflow", None)

    assert main(["diagnose", "/nowhere", "--notify", "mlflow"]) == 2
    assert "pip install 'forkpoint[mlflow]'" in capsys.readouterr().err


def test_a_run_that_fails_is_told_once_and_keeps_its_exit_code(tmp_path: Path) -> None:
    with web_service() as service:
        environ = {"FORKPOINT_NOTIFY": "webhook,pagerduty", "FORKPOINT_WEBHOOK_URL": service.url}
        environ |= {"FORKPOINT_PAGERDUTY_KEY": "0" * 32, "FORKPOINT_PAGERDUTY_URL": service.url}
        job = python(tmp_path, "import os, sys\nassert os.environ['FORKPOINT_NOTIFY'] == ''\nsys.exit(7)")
        done = start(tmp_path, "--timeout-for-dumps", "0.1", *job, **environ).finish()

    assert done.code == 7
    assert "webhook: notified" in done.stderr
    assert "pagerduty: not notified, the verdict is not decided" in done.stderr
    (told,) = service.heard
    assert told.json["cause"] == "inconclusive"
    assert done.survivors() == []


def test_of_nodes_that_share_a_folder_one_tells(tmp_path: Path) -> None:
    (tmp_path / "run" / "0").mkdir(parents=True)
    attempt = Attempt(0, tmp_path / "run" / "0", JobEnd(1, None, 1.0), Decision(1, ""))

    assert [claim_telling(attempt), claim_telling(attempt)] == [True, False]
