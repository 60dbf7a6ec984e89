"""The files under examples/ do what they say: exit codes, checks and fields are those that exist."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from forkpoint.doctor.checks import CHECKS
from forkpoint.live.children import DO_NOT_RETRY, RETRY, RETRY_ELSEWHERE
from looping import for_each

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = ["slurm/training.sbatch", "slurm/epilog.sh", "node-problem-detector/forkpoint-doctor.sh"]


def test_the_job_of_kubernetes_stops_at_the_code_that_means_it() -> None:
    text = (EXAMPLES / "kubernetes" / "training-job.yaml").read_text()
    rules = re.split(r"\n      - action: ", text.partition("  template:\n")[0])[1:]
    codes = {rule.split()[0]: re.findall(r"values: \[([\d, ]+)\]", rule) for rule in rules}

    assert codes == {"FailJob": [str(DO_NOT_RETRY)], "Ignore": [], "Count": [f"{RETRY}, {RETRY_ELSEWHERE}"]}
    assert "restartPolicy: Never" in text  # without it the API server refuses a podFailurePolicy
    assert "\t" not in text


@for_each("script", SCRIPTS)
def test_a_script_is_well_formed_and_changes_no_node(script: str) -> None:
    path = EXAMPLES / script
    text = path.read_text()

    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    assert os.access(path, os.X_OK)
    commands = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "echo "))]
    assert [line for line in commands if re.search(r"state=drain|cordon|scontrol update", line)] == []


@pytest.mark.parametrize("script", SCRIPTS[1:])
def test_checks_that_a_script_asks_for_exist(script: str) -> None:
    asked = re.search(r"(?:--only |checks=)([a-z][a-z,-]+)", (EXAMPLES / script).read_text())

    assert asked is not None
    assert set(asked[1].split(",")) <= {check.name for check in CHECKS}


def test_the_job_of_slurm_knows_every_code() -> None:
    cases = re.findall(r"^(\d+)\) ", (EXAMPLES / "slurm" / "training.sbatch").read_text(), re.MULTILINE)

    assert {int(code) for code in cases} == {RETRY, RETRY_ELSEWHERE, DO_NOT_RETRY}


def test_every_rule_of_node_problem_detector_has_its_condition_and_script() -> None:
    config = json.loads((EXAMPLES / "node-problem-detector" / "forkpoint-doctor.json").read_text())

    assert config["plugin"] == "custom"
    assert {rule["condition"] for rule in config["rules"]} == {c["type"] for c in config["conditions"]}
    assert all((EXAMPLES / "node-problem-detector" / Path(rule["path"]).name).is_file() for rule in config["rules"])


@for_each(
    ("results", "code", "says"),
    [
        ([{"check": "xids", "status": "bad"}, {"check": "gpu-ecc", "status": "bad"}], 1, "xids,gpu-ecc"),
        ([{"check": "xids", "status": "skipped"}], 0, "nothing bad"),
        ([], 2, "nothing bad"),
    ],
)
def test_the_plug_in_of_node_problem_detector_keeps_the_doctors_exit_code(
    tmp_path: Path, results: list[dict[str, str]], code: int, says: str
) -> None:
    said = run_plug_in(tmp_path, json.dumps({"schema": "forkpoint.doctor/1", "results": results}), code)

    assert (said.returncode, said.stdout.strip()) == (code, says)


def test_a_doctor_that_gives_no_report_is_not_taken_for_a_healthy_node(tmp_path: Path) -> None:
    said = run_plug_in(tmp_path, "", 2)

    assert (said.returncode, said.stdout.strip()) == (2, "forkpoint doctor gave no report")


def run_plug_in(folder: Path, report: str, code: int) -> subprocess.CompletedProcess[str]:
    """With a doctor that says this."""
    (folder / "report.json").write_text(report)
    doctor = folder / "forkpoint"
    doctor.write_text(f'#!/bin/sh\n[ "$1" = doctor ] && cat "{folder}/report.json"\nexit {code}\n')
    doctor.chmod(0o755)
    return subprocess.run(
        ["sh", str(EXAMPLES / SCRIPTS[2])],
        env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
