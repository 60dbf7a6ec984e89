"""`forkpoint collect` and `forkpoint bundle` as they are typed."""

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from collect.planted import HOSTS, plant
from forkpoint.cli import bundle, collect
from forkpoint.cli.options import Command
from forkpoint.errors import UsageError


def typed(command: Command, *argv: str | Path) -> int:
    parser = ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in argv]))


def test_what_was_gathered_is_said_and_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evidence = plant(tmp_path / "evidence")

    code = typed(collect.COMMAND, evidence, "ssh:nobody.invalid:/x", "-o", tmp_path / "a", "--seconds", "20")
    said = capsys.readouterr()
    typed(collect.COMMAND, evidence, "-o", tmp_path / "b", "--json")
    manifest = json.loads(capsys.readouterr().out)

    assert code == 0
    assert "2 archive, 2 dump, 2 log" in said.out
    assert f"forkpoint diagnose {tmp_path}/a" in said.out
    assert said.err.startswith("forkpoint: ssh:nobody.invalid:/x: ")
    assert "ssh: " in said.err  # its own words
    assert len(manifest["files"]) == 6


def test_nothing_found_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evidence").mkdir()

    assert typed(collect.COMMAND, tmp_path / "evidence", "-o", tmp_path / "out") == 3
    assert "gathered  nothing" in capsys.readouterr().out


def test_two_ways_to_the_same_servers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--debug-server finds the workers itself"):
        typed(collect.COMMAND, "-o", tmp_path / "out", "--debug-server", "a:1", "--worker", "b:2")


def test_a_bundle_says_what_is_inside_what_was_removed_and_where_the_map_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = plant(tmp_path / "evidence")

    code = typed(bundle.COMMAND, evidence, "-o", tmp_path / "t.tar.gz")
    said = capsys.readouterr().out

    assert code == 0
    assert "verdict.json" in said
    assert "weights.bin: neither a dump nor text" in said
    assert "aws-key" in said
    assert f"map       {tmp_path}/t.map.json: do not send it" in said
    assert HOSTS[0] in (tmp_path / "t.map.json").read_text()
    assert HOSTS[0] not in said


def test_a_dry_run_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evidence = plant(tmp_path / "evidence")

    typed(bundle.COMMAND, evidence, "-o", tmp_path / "t.tar.gz", "--dry-run", "--json")

    contents = json.loads(capsys.readouterr().out)
    assert contents["schema"] == "forkpoint.bundle/1"
    assert {"name": "verdict.json", "kind": "made by forkpoint", "bytes": None, "sha256": None} in contents["files"]
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]


def test_a_place_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        typed(bundle.COMMAND, tmp_path, "-o", tmp_path / "nowhere" / "t.tar.gz")
