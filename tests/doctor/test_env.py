"""What to set before a job, by release and launcher; and what a job script lacks of it."""

import ast
import json
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest

from forkpoint.cli.env import COMMAND
from forkpoint.doctor.checks.recorder import RECORDER_DUMP, RECORDER_ON
from forkpoint.doctor.checks.settings import UNKNOWN_VARIABLES, VARIABLE_VALUES
from forkpoint.doctor.report import CheckStatus
from forkpoint.doctor.script import check_script
from forkpoint.doctor.system import empty_machine, with_environ, with_packages
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.knowledge.base import EntryKind, entries
from forkpoint.knowledge.recorder import Release, parse_release, wanted
from forkpoint.knowledge.variables import LAUNCHERS, assignments, known_names
from looping import for_each

RELEASES = [Release(2, minor) for minor in range(1, 15)]
BY_LAUNCHER = for_each("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)
BY_RELEASE = for_each("release", RELEASES, ids=str)


def run_env(*args: str) -> int:
    parser = ArgumentParser()
    COMMAND.add_arguments(parser)
    return COMMAND.run(parser.parse_args(args))


def rendered(launcher, release: Release | None) -> str:
    return launcher.render((*wanted(release), *launcher.adds(release)), "/shared/dumps")


@for_each(
    ("text", "release"),
    [
        ("2.13.0+cpu", Release(2, 13)),
        ("v2.9", Release(2, 9)),
        ("2.14.0.dev20260801+cu130", Release(2, 14)),
        ("2", None),
        ("newest", None),
        ("", None),
    ],
)
def test_a_version_is_read_as_numbers(text: str, release: Release | None) -> None:
    assert parse_release(text) == release


def test_2_10_comes_after_2_9() -> None:
    assert parse_release("2.10.1") > parse_release("2.9.0")


@for_each(
    ("release", "names"),
    [
        (Release(2, 1), []),
        (
            Release(2, 6),
            ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"],
        ),
        (Release(2, 7), ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]),
        (Release(2, 10), ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"]),
        (Release(2, 11), ["TORCH_FR_DUMP_TEMP_FILE"]),
        (
            None,
            [
                "TORCH_FR_BUFFER_SIZE",
                "TORCH_NCCL_TRACE_BUFFER_SIZE",
                "TORCH_NCCL_DUMP_ON_TIMEOUT",
                "TORCH_FR_DUMP_TEMP_FILE",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
            ],
        ),
    ],
)
def test_only_what_a_release_does_not_do_by_itself_is_set(release: Release | None, names: list[str]) -> None:
    others = {"NCCL_DEBUG", "PYTHONFAULTHANDLER", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}

    assert [setting.name for setting in wanted(release) if setting.name not in others] == names


@BY_RELEASE
def test_the_doctor_is_content_with_what_is_to_be_set(release: Release) -> None:
    machine = with_packages(empty_machine(), {"torch": f"{release}.0"})
    set_up = with_environ(machine, {setting.name: setting.value for setting in wanted(release)})

    for check in (RECORDER_ON, RECORDER_DUMP, VARIABLE_VALUES, UNKNOWN_VARIABLES):
        assert check.look(set_up).status is (
            CheckStatus.OK
            if release >= (2, 2) or check in (VARIABLE_VALUES, UNKNOWN_VARIABLES)
            else CheckStatus.SKIPPED
        )


@BY_LAUNCHER
@BY_RELEASE
def test_what_is_printed_passes_the_check_of_scripts(launcher, release: Release) -> None:
    text = rendered(launcher, release)

    assert check_script(text, release) == ()
    assert {each.name for each in assignments(text.splitlines())} >= {setting.name for setting in wanted(release)}


@BY_LAUNCHER
def test_each_line_says_why(launcher) -> None:
    text = rendered(launcher, None)
    lines = [line for line in text.splitlines() if any(setting.name in line for setting in wanted(None))]

    assert len(lines) == len(wanted(None))
    assert [line for line in lines if "# " not in line] == []


@pytest.mark.parametrize("name", ["torchrun", "srun"])
def test_the_lines_for_a_shell_run_in_a_shell(name: str, tmp_path: Path) -> None:
    launcher = next(each for each in LAUNCHERS if each.name == name)
    script = launcher.render((*wanted(None), *launcher.adds(None)), str(tmp_path / "dumps"))

    told = subprocess.run(
        ["sh", "-euc", f"{script}\nenv"], env={"SLURM_JOB_ID": "81", "PATH": "/usr/bin:/bin"}, capture_output=True,
        text=True, check=True,
    ).stdout.splitlines()  # fmt: skip

    prefix = next(line for line in told if line.startswith("TORCH_FR_DUMP_TEMP_FILE="))
    folder = Path(prefix.partition("=")[2]).parent
    assert folder.is_dir()
    assert "81" in folder.name
    assert "TORCH_FR_BUFFER_SIZE=2000" in told


def test_the_lines_for_ray_are_python() -> None:
    launcher = next(each for each in LAUNCHERS if each.name == "ray")

    assert ast.parse(rendered(launcher, None))


def test_values_for_kubernetes_are_strings() -> None:
    launcher = next(each for each in LAUNCHERS if each.name == "kubernetes")
    values = [line.split("value: ")[1] for line in rendered(launcher, None).splitlines() if " value: " in line]

    assert len(values) == len(wanted(None))
    assert all(isinstance(json.loads(value), str) for value in values)


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "env.md").read_text()

    run_env("--launcher", "srun", "--torch", "2.9")

    assert f"```text\n{capsys.readouterr().out}```" in page


def test_the_command_prints_for_the_torch_it_finds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_env("--launcher", "srun", "--torch", "2.9") == 0
    assert capsys.readouterr().out.startswith("# torch 2.9, srun\n")

    run_env("--json", "--folder", "/scratch")
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["launcher"], document["torch"]) == ("forkpoint.env/1", "torchrun", "2.13")
    assert {"name", "value", "why"} == set(document["settings"][0])
    assert "/scratch/$JOB/rank_" in [setting["value"] for setting in document["settings"]]


@for_each(
    ("args", "says"),
    [
        (["--torch", "new"], "--torch new: is not a version"),
        (["--folder", "dumps"], "--folder dumps: give an absolute path"),
        (["--folder", "/d; rm -r x"], "plain characters"),
        (["--folder", "/$(id)"], "plain characters"),
    ],
)
def test_wrong_usage_says_what_is_wrong(args: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_env(*args)


def test_every_variable_of_the_knowledge_base_that_exists_is_a_known_name() -> None:
    real = {
        entry.code for entry in entries(EntryKind.VARIABLE) if "nothing" not in dict(entry.facts).get("read by", "")
    }

    assert real - known_names() == set()


def test_no_myth_is_among_the_known_names() -> None:
    myths = {entry.code for entry in entries(EntryKind.VARIABLE) if entry.title == "does not exist"}

    assert "NCCL_TIMEOUT" in myths
    assert myths & known_names() == set()


# Job scripts.

GOOD = """\
#!/bin/bash
#SBATCH --nodes=2
head=$(srun --nodes=1 hostname | head -n1)
export MASTER_ADDR=$head MASTER_PORT=29500
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000
export TORCH_FR_DUMP_TEMP_FILE=/shared/$SLURM_JOB_ID/rank_
# export NCCL_TIMEOUT=1 was never read
srun --export=ALL torchrun --log-dir /shared/logs --tee 3 \\
    --nproc-per-node 8 train.py
echo done
"""


def test_a_good_script_has_no_problem() -> None:
    assert check_script(GOOD, Release(2, 9)) == ()


@for_each(
    ("line", "number", "about", "says"),
    [
        ("export NCCL_TIMEOUT=1800", 2, "NCCL_TIMEOUT", "does not exist"),
        ("#SBATCH --export=ALL,NCCL_DEBGU=INFO", 2, "NCCL_DEBGU", "did you mean NCCL_DEBUG?"),
        ("export TORCH_FR_BUFFER_SIZE=2k", 2, "TORCH_FR_BUFFER_SIZE", "'2k' is not a whole number"),
        ("export TORCH_NCCL_ASYNC_ERROR_HANDLING=0", 2, "async-error-handling", "timeouts are not enforced"),
        ("export TORCH_NCCL_BLOCKING_WAIT=1", 2, "recorder-dump", "no watchdog runs"),
        ("export TORCH_NCCL_ENABLE_TIMING=1", 2, "recorder-timing", "not for production"),
        ("pkill -9 -f train.py", 2, "pkill -9 -f", "of any job on the node"),
        ("rm -rf /dev/shm/nccl-*", 2, "rm -rf /dev/shm/nccl", "breaks jobs that run"),
        ("kill -USR1 $PID", 2, "kill -USR1", "no handler"),
        ("srun --export=NONE python train.py", 2, "--export=NONE", "hides the script's variables from the ranks"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line: str, number: int, about: str, says: str) -> None:
    problems = check_script(GOOD.replace("#SBATCH --nodes=2", line), Release(2, 9))
    found = [problem for problem in problems if problem.line == number and problem.about == about]

    assert len(found) == 1
    assert says in found[0].says
    assert found[0].fix


@for_each(
    "line",
    [
        "# export NCCL_TIMEOUT=1800",
        "echo $NCCL_TIMEOUT ${NCCL_TIMEOUT}",
        'if [ "$NCCL_DEBUG" == INFO ]; then true; fi',
        "export NCCL_FASTRAK_CTRL_DEV=eth0",
        "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=$LIMIT",
        "kill -0 $PID",
        "rm -rf /dev/shm/mine",
    ],
)
def test_what_only_looks_wrong_is_left_alone(line: str) -> None:
    assert check_script(GOOD.replace("#SBATCH --nodes=2", line), Release(2, 9)) == ()


@pytest.mark.parametrize(
    ("without", "about"),
    [
        ("export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "recorder-on"),
        ("export TORCH_FR_DUMP_TEMP_FILE=/shared/$SLURM_JOB_ID/rank_", "recorder-path-unique"),
    ],
)
def test_what_is_missing_is_named_without_a_line(without: str, about: str) -> None:
    problems = check_script(GOOD.replace(without, "true"), Release(2, 9))

    assert [(problem.line, problem.about) for problem in problems] == [(None, about)]


def test_what_a_newer_torch_does_by_itself_is_not_missing() -> None:
    script = GOOD.replace("export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "true")

    assert check_script(script, Release(2, 11)) == ()


def test_without_a_release_only_what_is_wrong_everywhere_is_told() -> None:
    assert check_script("export NCCL_DEBUG=WARN", None) == ()
    assert [each.about for each in check_script("export NCCL_TIMEOUT=1", None)] == ["NCCL_TIMEOUT"]


def test_a_setting_behind_the_launch_comes_too_late_and_is_not_in_force() -> None:
    problems = check_script(f"{GOOD}export TORCH_NCCL_BLOCKING_WAIT=1\n", Release(2, 9))

    assert [(each.line, each.says) for each in problems] == [(11, "set after the job is started in line 9")]


def test_torchrun_without_a_log_per_rank() -> None:
    problems = check_script(GOOD.replace(" --log-dir /shared/logs --tee 3", ""), Release(2, 9))

    assert [(each.line, each.about) for each in problems] == [(8, "torchrun")]


@for_each(
    ("text", "found"),
    [
        (
            "export NCCL_DEBUG=INFO NCCL_IB_TIMEOUT='22'",
            [("NCCL_DEBUG", "INFO", True), ("NCCL_IB_TIMEOUT", "22", True)],
        ),
        ("NCCL_DEBUG=INFO python train.py", [("NCCL_DEBUG", "INFO", True)]),
        ("mpirun -x NCCL_DEBUG=INFO train", [("NCCL_DEBUG", "INFO", True)]),
        ("setenv NCCL_DEBUG INFO", [("NCCL_DEBUG", "INFO", True)]),
        ("ENV NCCL_DEBUG INFO", [("NCCL_DEBUG", "INFO", True)]),
        ("ENV NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", True)]),
        ('os.environ["NCCL_DEBUG"] = "INFO"', [("NCCL_DEBUG", "INFO", True)]),
        ('os.environ["NCCL_DEBUG"] = level', [("NCCL_DEBUG", "level", False)]),
        ('os.environ.setdefault("NCCL_DEBUG", "INFO")', [("NCCL_DEBUG", "INFO", True)]),
        ('{"NCCL_DEBUG": "INFO"}', [("NCCL_DEBUG", "INFO", True)]),
        ("  NCCL_DEBUG: INFO  # why", [("NCCL_DEBUG", "INFO", True)]),
        ('- name: NCCL_DEBUG\n  value: "INFO"', [("NCCL_DEBUG", "INFO", True)]),
        ("export NCCL_DEBUG=${LEVEL:-INFO}", [("NCCL_DEBUG", "${LEVEL:-INFO", False)]),
        ("echo NCCL_DEBUG", []),
        ("unset NCCL_DEBUG", []),
        ("#NCCL_DEBUG=INFO", []),
        ("export MY_NCCL_DEBUG=INFO", []),
    ],
)
def test_how_scripts_set_variables(text: str, found: list[tuple[str, str, bool]]) -> None:
    assert [(each.name, each.value, each.is_known) for each in assignments(text.splitlines())] == found


def test_the_command_reads_a_script_and_never_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"touch {tmp_path}/ran\nexport NCCL_TIMEOUT=1\n")

    assert run_env("--check", str(script), "--torch", "2.13") == 1

    out = capsys.readouterr().out
    assert f"{script}:2: NCCL_TIMEOUT: does not exist" in out
    assert not (tmp_path / "ran").exists()


def test_problems_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "job.sh"
    script.write_text("export NCCL_TIMEOUT=1\n")

    run_env("--check", str(script), "--torch", "2.1", "--json")

    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["torch"]) == ("forkpoint.env-check/1", "2.1")
    assert [(each["line"], each["about"]) for each in document["problems"]] == [(1, "NCCL_TIMEOUT")]


def test_a_hostile_script_cannot_act_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "job.sh"
    script.write_text("export TORCH_DISTRIBUTED_DEBUG='\x1b[2J'\n")

    run_env("--check", str(script), "--torch", "2.13")

    assert "\x1b" not in capsys.readouterr().out


def test_a_script_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match=r"gone\.sh: cannot be read"):
        run_env("--check", str(tmp_path / "gone.sh"))
