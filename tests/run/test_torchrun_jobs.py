"""Real jobs under a real torchrun on gloo, broken in the ways in which jobs break. They all run at once."""

import json
import os
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from forkpoint.evidence import read
from forkpoint.history.queries import list_incidents, suspect_places
from forkpoint.history.store import open_store
from forkpoint.live.worker import decide, find_nodes
from forkpoint.pipeline import diagnose
from looping import for_each, is_swept
from run.wrapped import Done, Wrapped, start

pytestmark = pytest.mark.torch

RUN, VERDICT = (
    Draft202012Validator(json.loads((files(package) / f"{name}.schema.json").read_text()))
    for package, name in (("forkpoint.live.run", "run"), ("forkpoint.report", "verdict"))
)
JOB = str(Path(__file__).with_name("job.py"))
PLUG_IN = ("--logs-specs", "forkpoint")
WRAPPED = {
    "crash": ((), PLUG_IN, 3, "raise without torch", 600),
    "lost GPU": (("--prometheus", "run.prom"), (), 2, "lose the GPU without torch", 600),
    "divergence": (("--hang-after", "20"), (), 3, "broadcast", 600),
}
"""What goes wrong: options of forkpoint run and of torchrun, ranks, what rank 1 does in step 10, gloo's timeout.
Where all is told by logs and exit codes, ranks go without torch: to import it is most of what such a rank costs."""
SWEPT = {
    "success": ((), (), 1, "nothing", 600),
    "crash on gloo": ((), PLUG_IN, 3, "raise", 600),
    "lost GPU on gloo": ((), (), 2, "lose the GPU", 600),
    "told to stop": ((), (), 2, "sleep", 600),
    "killed rank": ((), (), 2, "kill", 600),
    "hang": ((), (), 2, "sleep", 45),
}
"""Every rank imports torch for itself, so that these are left to `make sweep`."""
ALL = WRAPPED | SWEPT
STORE = "history.sqlite"
"""One for all jobs, which write to it at once."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Done]:
    started: dict[str, Wrapped] = {}
    store = str(tmp_path_factory.getbasetemp() / STORE)
    for name, (options, more, ranks, how, timeout) in (ALL if is_swept(request) else WRAPPED).items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(ranks), *more, JOB, how, str(timeout)]
        started[name] = start(folder, *options, "--store", store, "--", *torchrun, **with_plug_in(folder))
    if "told to stop" in started:
        started["told to stop"].wait_for_line("step 9")
        started["told to stop"].process.terminate()
    return {name: wrapped.finish() for name, wrapped in started.items()}


def with_plug_in(folder: Path) -> dict[str, str]:
    """The entry point, as an installation of forkpoint registers it; whether or not this one has."""
    about = folder / "site" / "plug_in-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torchrun.logs_specs]\nforkpoint = forkpoint.torchrun:RankLogs\n")
    path = [str(about.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


def test_what_went_wrong_is_kept_once_with_its_run_also_where_the_guard_is_on(
    jobs: dict[str, Done], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = open_store(str(tmp_path_factory.getbasetemp() / STORE))
    kept = list_incidents(store, limit=None)
    (lost,) = (one for one in kept if one.cause == "rank-lost" and one.action == "replace-node")
    places = suspect_places(store, lost.id)
    store.close()

    failed = sorted(str(job.verdict["cause"]) for job in jobs.values() if job.verdict)
    assert sorted(one.cause for one in kept) == failed
    assert all(one.run and one.attempt == 0 for one in kept)
    assert len(places) == 1


def test_no_process_survives(jobs: dict[str, Done]) -> None:
    assert {name: job.survivors() for name, job in jobs.items()} == {name: [] for name in jobs}


@for_each(
    ("name", "code"),
    [
        ("crash", 93),
        ("lost GPU", 76),
        ("divergence", 93),
    ],
)
def test_the_exit_code_says_what_to_do(jobs: dict[str, Done], name: str, code: int) -> None:
    assert jobs[name].code == code, jobs[name].stderr


@for_each(
    ("name", "cause", "suspects"),
    [
        ("crash", "rank-lost", [1]),
        ("lost GPU", "rank-lost", [1]),
        ("divergence", "divergent-path", [1]),
    ],
)
def test_the_verdict_is_that_of_what_went_wrong(
    jobs: dict[str, Done], name: str, cause: str, suspects: list[int]
) -> None:
    assert (jobs[name].verdict["cause"], jobs[name].verdict["suspects"]) == (cause, suspects)
    assert f"VERDICT v1 cause={cause} " in jobs[name].stderr


@pytest.mark.sweep
@for_each(
    ("name", "code", "cause", "suspects"),
    [
        ("killed rank", 75, "rank-lost", [1]),
        ("hang", 1, "inconclusive", []),
        ("lost GPU on gloo", 76, "rank-lost", [1]),
    ],
)
def test_a_rank_that_is_killed_or_lost_and_a_hang_that_gloo_ends_are_told_apart(
    jobs: dict[str, Done], name: str, code: int, cause: str, suspects: list[int]
) -> None:
    assert jobs[name].code == code, jobs[name].stderr
    assert (jobs[name].verdict["cause"], jobs[name].verdict["suspects"]) == (cause, suspects)
    assert f"VERDICT v1 cause={cause} " in jobs[name].stderr
    assert_every_log_is_there(jobs[name], SWEPT[name][2])


@pytest.mark.sweep
def test_a_rank_that_raises_among_ranks_of_gloo_is_the_one_that_left(jobs: dict[str, Done]) -> None:
    job = jobs["crash on gloo"]

    assert job.code == 93, job.stderr
    assert (job.verdict["cause"], job.verdict["suspects"]) == ("divergent-path", [1])


@pytest.mark.sweep
def test_a_job_that_is_told_to_stop_leaves_its_logs_and_its_launchers_exit_code(jobs: dict[str, Done]) -> None:
    """Without torchrun, which passes it on to ranks, in test_endings.py."""
    assert jobs["told to stop"].code == 1, jobs["told to stop"].stderr
    assert_every_log_is_there(jobs["told to stop"], SWEPT["told to stop"][2])


def test_the_node_whose_gpu_was_lost_is_named_to_be_left_out_wherever_the_decision_goes(jobs: dict[str, Done]) -> None:
    job = jobs["lost GPU"]

    assert job.verdict["action"] == "replace-node"
    assert "Xid 79" in job.verdict["summary"]
    assert job.outcome["decision"]["code"] == 76
    assert job.outcome["decision"]["nodes"] == ["gpu-07"]
    assert "forkpoint: nodes to leave out: gpu-07\n" in job.stderr
    assert "forkpoint_run_exit_code 76.0" in (job.folder / "run.prom").read_text()


def test_the_same_evidence_with_an_xid_of_another_process_at_another_gpu_leaves_no_node_out(
    jobs: dict[str, Done], tmp_path: Path
) -> None:
    runs = shutil.copytree(jobs["lost GPU"].folder / "runs", tmp_path / "runs")
    (kernel_log,) = runs.rglob("dmesg_gpu-07.txt")
    (attempt,) = runs.glob("*/attempt_0")
    kernel_log.write_text(kernel_log.read_text().replace("1a:00", "9a:00"))
    capture = read([str(attempt)])

    decision = decide(diagnose(capture), 1, find_nodes(capture, attempt))

    assert (decision.code, decision.nodes) == (75, ())


def test_what_became_of_a_run_is_told_as_the_schema_says(jobs: dict[str, Done]) -> None:
    for job in jobs.values():
        RUN.validate(job.outcome)
        for attempt in job.outcome["attempts"]:
            assert attempt["verdict"] is None or VERDICT.is_valid(attempt["verdict"])


@pytest.mark.sweep
def test_a_job_that_succeeds_leaves_no_folder_and_says_nothing_of_forkpoint(jobs: dict[str, Done]) -> None:
    assert jobs["success"].evidence() == []
    assert "forkpoint" not in jobs["success"].stderr
    assert jobs["success"].stdout == "".join(f"[rank0]:step {step}\n" for step in range(20))


@for_each("name", ["lost GPU", "divergence"])
def test_every_rank_has_a_log_and_the_launcher_too(jobs: dict[str, Done], name: str) -> None:
    assert_every_log_is_there(jobs[name], WRAPPED[name][2])


def assert_every_log_is_there(job: Done, ranks: int) -> None:
    files = [path for path in job.evidence() if path.suffix == ".log"]

    assert [path.name for path in files if path.parent.name == "logs"] == ["stderr.log"]
    said = [path.read_text() for path in files if "stdout" in path.name]
    assert len(said) == ranks
    assert any("step 9\n" in text for text in said)  # a rank may be ended before it has said so


def test_a_hanging_job_is_judged_by_dumps_and_stacks_of_all_ranks(jobs: dict[str, Done]) -> None:
    coverage = jobs["divergence"].verdict["coverage"]

    assert (coverage["ranks"], coverage["dumps"], coverage["stacks"]) == (3, 3, 3)
    assert jobs["divergence"].outcome["attempts"][0]["hung"] is True
    assert jobs["divergence"].verdict["divergence"]["seq"] == 11


def test_log_options_of_the_user_stay_and_what_is_said_is_copied(jobs: dict[str, Done]) -> None:
    """The job that crashed chose the plug-in for its logs."""
    assert {path.name for path in jobs["crash"].evidence()} == {"stdout.log", "stderr.log"}


def test_the_plug_in_names_logs_by_rank_without_a_change_of_code(jobs: dict[str, Done]) -> None:
    logs = {path.name: path.read_text() for path in (jobs["crash"].folder / "forkpoint-runs").rglob("*.log")}

    assert {f"{stream}_rank_{rank}.log" for stream in ("stdout", "stderr") for rank in range(3)} <= logs.keys()
    assert "ValueError: a bad batch" in logs["stderr_rank_1.log"]
    assert all("step 9" in logs[f"stdout_rank_{rank}.log"] for rank in range(3))
    assert "ValueError: a bad batch" in jobs["crash"].stderr  # still passed on


def test_what_the_plug_in_leaves_can_be_diagnosed(jobs: dict[str, Done]) -> None:
    verdict = diagnose(read([str(jobs["crash"].folder / "forkpoint-runs")]))

    assert (verdict.cause, verdict.suspects) == ("rank-lost", (1,))
