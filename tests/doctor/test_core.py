"""The doctor as a whole: every check can fail, none says ok of what it did not see, one that breaks costs only itself."""

import json
import os
import re
import subprocess
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from forkpoint.cli.doctor import COMMAND
from forkpoint.doctor import examine
from forkpoint.doctor.broken import examine_injected
from forkpoint.doctor.checks import CHECKS
from forkpoint.doctor.live import find_package, folders_of_environment, folders_of_process, live_system, mount_of, once
from forkpoint.doctor.report import CheckStatus, DoctorCheck, bad, ok, render_json
from forkpoint.doctor.system import Ran, Unanswered, empty_machine, with_files
from forkpoint.doctor.text import render_text
from forkpoint.errors import UsageError
from looping import for_each

VALIDATOR = Draft202012Validator(
    json.loads((files("forkpoint.doctor") / "doctor.schema.json").read_text(encoding="utf-8"))
)
BY_CHECK = for_each("check", CHECKS, ids=lambda check: check.name)


def check_named(name: str, look) -> DoctorCheck:
    return DoctorCheck(name, "a title", "a reason", look, {})


@BY_CHECK
def test_every_check_can_be_made_to_fail(check: DoctorCheck) -> None:
    report = examine_injected(empty_machine(), check)

    assert report.injected == check.name
    assert [(judged.check, judged.result.status) for judged in report.results] == [(check.name, CheckStatus.BAD)]
    assert report.results[0].result.fix


@BY_CHECK
def test_every_check_says_what_goes_wrong_without_it(check: DoctorCheck) -> None:
    assert check.why.endswith(".")


def test_no_two_checks_share_a_name_and_none_is_left_out() -> None:
    folder = Path(str(files("forkpoint.doctor.checks")))
    modules = [import_module(f"forkpoint.doctor.checks.{path.stem}") for path in folder.glob("[a-z]*.py")]
    written = {
        name: value for module in modules for name, value in vars(module).items() if isinstance(value, DoctorCheck)
    }

    assert sorted(check.name for check in CHECKS) == sorted(check.name for check in written.values())
    assert all(name == check.name.replace("-", "_").upper() for name, check in written.items())


def test_the_page_names_every_check_as_it_names_itself() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()

    assert re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE) == [
        (check.name, check.title, check.why) for check in CHECKS
    ]


@BY_CHECK
def test_no_fix_breaks_other_peoples_jobs_or_does_nothing(check: DoctorCheck) -> None:
    fix = examine_injected(empty_machine(), check).bad[0].result.fix

    assert not re.search(r"\brm\b|pkill|killall|kill -|NCCL_TIMEOUT=|nvidia-smi -e", fix)


def test_on_a_machine_of_which_nothing_is_known_nothing_is_ok() -> None:
    report = examine(empty_machine(), CHECKS)

    assert {judged.result.status for judged in report.results} == {CheckStatus.SKIPPED}
    assert all(judged.result.says for judged in report.results)
    assert (report.failures, report.exit_code) == ((), 0)


def test_this_machine_can_be_looked_at() -> None:
    report = examine(live_system(), CHECKS)

    assert report.failures == ()
    assert [judged.check for judged in report.results] == [check.name for check in CHECKS]
    VALIDATOR.validate(json.loads(render_json(report)))


def test_a_check_that_raises_or_never_returns_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, told = threading.Event(), iter([0.0])
    checks = [
        check_named("raises", lambda _system: 1 // 0),
        check_named("stuck", lambda _system: stuck.wait()),
        check_named("fine", lambda _system: ok("seen")),
    ]

    def clock() -> float:
        """The limit passes when all but the stuck one are done, however long a busy machine takes for them."""
        if (began := next(told, None)) is not None:
            return began
        for thread in threading.enumerate():
            if thread.name in ("raises", "fine"):
                thread.join()
        return 3.0

    monkeypatch.setattr("forkpoint.doctor.time", SimpleNamespace(monotonic=clock))
    report = examine(empty_machine(), checks, limit_s=2.5)
    stuck.set()

    assert [judged.check for judged in report.results] == ["fine"]
    assert [failure.check for failure in report.failures] == ["raises", "stuck"]
    assert "ZeroDivisionError" in report.failures[0].why
    assert "no result after 2.5 s" in report.failures[1].why
    assert report.exit_code == 2


def test_what_is_bad_outweighs_what_is_unknown() -> None:
    checks = [check_named("raises", lambda _system: 1 // 0), check_named("bad", lambda _system: bad("no", "yes"))]

    assert examine(empty_machine(), checks).exit_code == 1


def test_what_a_machine_says_cannot_act_on_the_terminal() -> None:
    hostile = check_named("hostile", lambda _system: bad("\x1b[2Jgone", "echo \x1b]0;title\x07"))

    text = render_text(examine(replace(empty_machine(), host="no\x1bde"), [hostile]), 80)

    assert "\x1b" not in text
    assert "\\x1b[2Jgone" in text


def test_a_fix_stays_on_one_line_to_be_copied() -> None:
    command = "export " + " ".join(f"NAME_{n}=1" for n in range(30))
    report = examine(empty_machine(), [check_named("long", lambda _system: bad("word " * 40, command))])

    lines = render_text(report, 80).splitlines()

    assert f"fix: {command}" in [line.strip() for line in lines]
    assert max(len(line) for line in lines if "fix:" not in line) <= 80


def test_an_injected_report_says_so_first() -> None:
    text = render_text(examine_injected(empty_machine(), CHECKS[0]), 80)

    assert text.startswith(f"INJECTED: {CHECKS[0].name} was made bad in a simulation")


# The live machine.


@contextmanager
def a_process(**environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its input to end, with these variables and nothing else."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
    )
    with process:
        process.stdout.readline()
        yield process


def test_a_programs_answer_and_the_two_ways_to_get_none() -> None:
    run = live_system().run

    assert run(("sh", "-c", "echo out; echo err >&2; exit 3"), 600.0) == Ran(3, "out\n", "err\n")
    assert run(("no-such-program-here",)) == Unanswered("no-such-program-here is not installed")
    assert run(("sleep", "60"), 0.1) == Unanswered("sleep did not answer in 0.1 s")


def test_a_process_is_seen_with_what_it_was_started_with_but_not_with_secrets() -> None:
    with a_process(RANK="3", AWS_SECRET_ACCESS_KEY="s3cret", SLURM_JWT="s3cret") as child:
        found = next(process for process in live_system().processes() if process.pid == child.pid)

    assert found.environ == {"RANK": "3"}
    assert (found.ppid, found.uid) == (os.getpid(), os.getuid())
    assert found.command[0] == sys.executable


def test_the_settings_of_a_job_are_those_of_its_process() -> None:
    with a_process(RANK="0", TORCH_FR_BUFFER_SIZE="0", HOME="/nowhere") as child:
        system = live_system(child.pid)

    assert system.job == child.pid
    assert system.environ["TORCH_FR_BUFFER_SIZE"] == "0"
    assert system.proc == f"/proc/{child.pid}"


def test_a_launcher_stands_for_its_first_rank() -> None:
    """The parent of this test's process has no RANK, so the rank below it is found."""
    with a_process(RANK="0") as child:
        assert live_system(os.getpid()).job == child.pid


def test_a_job_that_is_not_there_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--job 4194999: its environment cannot be read"):
        live_system(4194999)


def test_a_disk_is_told_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    disk = live_system().disk(str(tmp_path / "not" / "yet"))

    assert not isinstance(disk, Unanswered)
    assert disk.total >= disk.free > 0
    assert str(tmp_path).startswith(disk.mount)


def test_of_mounts_the_nearest_counts_and_of_two_at_one_place_the_later() -> None:
    table = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:1 / /dumps rw - tmpfs tmpfs rw\n"
        "3 1 0:2 /job7 /dumps rw shared:1 - nfs4 host:/x rw\n"
        "4 1 0:3 / /dumps\\040two rw - overlay none rw\n"
    )

    assert mount_of("/dumps/rank_", table).kind == "nfs4"
    assert mount_of("/dumps/rank_", table).root == "/job7"
    assert mount_of("/dumps two/x", table).kind == "overlay"
    assert mount_of("/dumpster", table).kind == "ext4"


def test_a_package_is_found_without_importing_it(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "python3.12" / "site-packages"
    metadata = folder / "nvidia_nccl_cu12-2.27.3.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Name: nvidia-nccl-cu12\nRequires-Dist: numpy>=1\n")

    folders = folders_of_environment({"VIRTUAL_ENV": str(tmp_path)})
    found = find_package(folders, "nvidia-nccl-cu12")

    assert (found.version, found.requires) == ("2.27.3", ("numpy>=1",))
    assert find_package(folders[:1], "nvidia-nccl") is None


def test_a_running_process_tells_where_its_torch_is() -> None:
    maps = (
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 42   /usr/lib/x86_64-linux-gnu/libc.so.6\n"
        "7f0000002000-7f0000003000 r-xp 00000000 08:01 43   /venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so\n"
    )

    assert folders_of_process(maps) == ("/venv/lib/python3.12/site-packages",)


def test_what_many_ask_at_once_is_asked_once() -> None:
    asked: list[int] = []
    together = threading.Barrier(4)

    def answer(number: int) -> int:
        asked.append(number)
        return number

    ask = once(answer)

    def wait_and_ask() -> None:
        together.wait()
        assert ask(1) == 1

    threads = [threading.Thread(target=wait_and_ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert asked == [1]
    assert ask(2) == 2


def test_a_recorded_machine_changes_when_it_is_waited_for() -> None:
    machine = with_files(empty_machine(), {"/sys/a/count": "1", "/sys/a/b/c": "x"}, later={"/sys/a/count": "5"})
    before = machine.read("/sys/a/count")
    machine.pause(1.0)

    assert (before, machine.read("/sys/a/count")) == ("1", "5")
    assert machine.names("/sys/a") == ("b", "count")


# The command, as a person runs it.


def run_doctor(*args: str) -> int:
    parser = ArgumentParser()
    COMMAND.add_arguments(parser)
    return COMMAND.run(parser.parse_args(args))


def test_only_the_named_checks_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_doctor("--only", "timeouts,orphans", "--only", "timeouts", "--json")
    document = json.loads(capsys.readouterr().out)

    assert [result["check"] for result in document["results"]] == ["timeouts", "orphans"]
    assert code == document["exit_code"]
    VALIDATOR.validate(document)


def test_an_injection_ends_with_the_code_of_a_bad_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_doctor("--inject", "clock", "--json") == 1

    document = json.loads(capsys.readouterr().out)
    assert (document["injected"], document["results"][0]["status"]) == ("clock", "bad")
    VALIDATOR.validate(document)


def test_every_check_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run_doctor("--list")
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    run_doctor("--list", "--json")
    listed = [row["check"] for row in json.loads(capsys.readouterr().out)["checks"]]

    assert names == listed == [check.name for check in CHECKS]


@for_each(
    ("args", "says"),
    [
        (["--only", "clok"], "did you mean clock"),
        (["--inject", "nothing-like-it-at-all"], "forkpoint doctor --list"),
        (["--only", "clock", "--inject", "clock"], "exclude each other"),
        (["--compare", "one.json"], "at least two nodes"),
        (["--since", "a.json", "--json"], "--since"),
    ],
)
def test_wrong_usage_says_what_is_wrong(args: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_doctor(*args)


def test_metrics_do_not_mistake_skipped_for_ok(tmp_path: Path) -> None:
    path = tmp_path / "doctor.prom"

    run_doctor("--inject", "clock", "--prometheus", str(path))

    assert 'forkpoint_doctor_check{check="clock",status="bad"} 1.0' in path.read_text()
    assert 'forkpoint_doctor_check{check="clock",status="ok"} 0.0' in path.read_text()


def test_help_does_not_read_the_machine_nor_the_checks() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, forkpoint.cli.doctor, forkpoint.cli.env; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert [
        name for name in loaded if name.startswith(("forkpoint.doctor", "forkpoint.knowledge", "torch", "rich"))
    ] == []


def test_a_doctor_never_imports_torch() -> None:
    program = (
        "import sys; from forkpoint.doctor import examine; from forkpoint.doctor.checks import CHECKS;"
        "from forkpoint.doctor.live import live_system; examine(live_system(), CHECKS); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "torch" not in loaded
