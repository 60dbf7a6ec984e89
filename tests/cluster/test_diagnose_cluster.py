"""`forkpoint diagnose --cluster` from the command line, with a small program for ssh."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from cluster.machines import plant
from cluster.test_commands import SSH
from forkpoint.cli import main


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a folder of ours beside them, in which commands are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("MACHINES", str(tmp_path / "machines"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    plant(tmp_path / "machines", ["node1", "node2"], per_node=2)
    return tmp_path / "machines"


def forkpoint(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """In this process: nodes have theirs."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(["diagnose", *arguments])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def on_nodes(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return forkpoint("--cluster", "ssh", "--node-python", sys.executable, *arguments)


def test_nodes_are_asked_and_what_is_missing_stands_in_the_verdict(machines: Path) -> None:
    (machines.parent / "hosts").write_text("node1  # of rack 4\n\nnode2\n")
    (machines.parent / "dumps").mkdir()
    options = ("--hosts-file", "hosts", "--hosts", "gone", "--keep", "all.fps", "--representatives", "dumps")

    run = on_nodes("~/dumps", *options, "--json")

    verdict = json.loads(run.stdout)
    assert (run.returncode, verdict["cause"], verdict["suspects"]) == (1, "host-stall", [3])
    notes = verdict["coverage"]["notes"]
    assert [note for note in notes if note.startswith("gone: gone does not answer: it is down")]
    assert len([note for note in notes if "is in dumps/nccl_trace_rank_" in note]) == 2
    assert sorted(p.name for p in (machines.parent / "dumps").iterdir()) == ["nccl_trace_rank_0", "nccl_trace_rank_3"]
    assert "forkpoint: summaries of 2 of 3 nodes" in run.stderr


def test_a_summary_that_was_kept_is_diagnosed_again_without_the_nodes(machines: Path) -> None:
    first = on_nodes("~/dumps", "--hosts", "node1,node2,gone", "--keep", "all.fps", "--json")

    again = forkpoint("all.fps", "--json")

    assert json.loads(again.stdout) == json.loads(first.stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("dumps", "--cluster", "ssh", "--hosts", "node1"), "must begin with / or ~/"),
        (("/dumps", "--hosts", "node1"), "--hosts needs --cluster"),
        (("/dumps", "--cluster", "ssh"), "needs --hosts"),
        (("/dumps", "--cluster", "ssh", "--hosts-file", "nothing"), "cannot be read"),
        (("/dumps", "--cluster", "ssh", "--hosts", "a", "--representatives", "nothing"), "create it first"),
        (("/dumps", "--cluster", "ssh", "--hosts", "a", "--keep", "bin"), "is a directory"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(machines: Path, arguments: tuple[str, ...], says: str) -> None:
    run = forkpoint(*arguments)

    assert run.returncode == 2
    assert says in run.stderr


def test_where_no_node_has_anything_nothing_is_said_about_the_job(machines: Path) -> None:
    run = on_nodes("/no/such/place", "--hosts", "node1,gone")

    assert (run.returncode, run.stdout) == (3, "")
    assert "node1" in run.stderr
    assert "gone" in run.stderr


@pytest.mark.parametrize(("engine", "extra"), [("ray", "cluster"), ("monarch", "monarch")])
def test_an_engine_that_is_not_installed_is_named_with_its_pip_command(engine: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{engine!r}] = None; from forkpoint.cli import main; "
        f"sys.exit(main(['diagnose', '--cluster', {engine!r}, '--hosts', 'tcp://a:1', '/dumps']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert run.returncode == 2
    assert f"pip install 'forkpoint[{extra}]'" in run.stderr
