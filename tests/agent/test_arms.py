"""An outside agent in three arms: a scripted one, started as any other is."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cases import CASES
from forkpoint.cli import main

AGENT = """
import json, sys
from pathlib import Path
from typing import Any

task, servers = sys.stdin.read(), json.loads(Path(sys.argv[1]).read_text())["mcpServers"]
assert Path("TASK.md").read_text() == task
assert ("FORKPOINT'S VERDICT" in task) == bool(servers)
told = {"cause": "divergent-path", "suspects": [0], "group": "default_pg", "seq": 16, "file": "source/train.py", "line": 15}
print(json.dumps({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}}))
print(json.dumps({"type": "user", "message": {"content": [{"type": "tool_result", "content": "x" * 500}]}}))
if servers:
    import anyio
    from mcp import Client, StdioServerParameters

    async def ask():
        async with Client(StdioServerParameters(**servers["forkpoint"])) as client:
            found = await client.call_tool("verdict", {})
            assert "divergent-path" in found.content[0].text
            told["suspects"] = [0] if ", rank 0;" in found.content[0].text else [3]

    anyio.run(ask)
else:
    told["suspects"] = [3]
Path("answer.json").write_text(json.dumps(told))
"""


def evaluate(folder: Path, command: str, *more: str) -> tuple[int, Any]:
    code = main(
        [
            "eval",
            str(CASES),
            "--only",
            "0001",
            "--agent",
            command,
            "--out",
            str(folder / "out"),
            "--quiet",
            "--json",
            *more,
        ]
    )
    return code, json.loads((folder / "out" / "results.json").read_text())


def test_an_agent_is_run_in_three_arms_and_what_it_did_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    code, told = evaluate(tmp_path, f"{sys.executable} {script} {{mcp}}")

    assert code == 0
    assert json.loads(capsys.readouterr().out) == told
    runs = {run["arm"]: run for run in told["runs"]}
    assert {arm: run["right"] for arm, run in runs.items()} == {"engine": True, "alone": False, "with": True}, told
    assert [runs[arm]["effort"]["calls"] for arm in ("engine", "alone", "with")] == [0, 1, 1]
    assert runs["alone"]["effort"]["characters"] == 500
    assert 3500 < runs["with"]["effort"]["characters"] < 12_500  # the brief, and what it asked
    assert (runs["alone"]["cause"], runs["alone"]["marks"]["site"]) == (True, True)
    assert told["misled"] == []
    (asked,) = (tmp_path / "out" / "with" / "0001" / "asked.jsonl").read_text().splitlines()
    assert json.loads(asked)["tool"] == "verdict"
    assert json.loads((tmp_path / "out" / "with" / "0001" / "answer.json").read_text())["suspects"] == [0]
    assert (tmp_path / "out" / "alone" / "0001" / "transcript.txt").read_text().count("tool_use") == 1


def test_an_agent_that_gives_no_answer_is_wrong_and_does_not_end_the_rest(tmp_path: Path) -> None:
    code, told = evaluate(tmp_path, f"{sys.executable} -c 'raise SystemExit(3)'", "--arms", "alone", "with")

    assert code == 0
    assert [(run["right"], run["ended"]) for run in told["runs"]] == [(False, "the agent ended with code 3")] * 2
    assert told["totals"][0]["calls"] is None


def test_an_agent_that_does_not_end_is_ended(tmp_path: Path) -> None:
    _, told = evaluate(
        tmp_path, f"{sys.executable} -c 'import time; time.sleep(600)'", "--arms", "alone", "--minutes", "0.01"
    )

    assert told["runs"][0]["ended"] == "no answer after 0.01 minutes"


def test_what_cannot_be_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["eval", str(CASES), "--agent", "no-such-agent", "--only", "0001", "--out", str(tmp_path), "--quiet"]) == 2
    )
    assert "no-such-agent: cannot be started" in capsys.readouterr().err
    assert main(["eval", str(CASES), "--agent", "x", "--only", "0001"]) == 2
    assert "needs --out" in capsys.readouterr().err
