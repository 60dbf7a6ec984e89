"""Real jobs on gloo under sbatch and srun: the example script and its exit codes, requeue, epilog, and attach."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from bench.attach.hangs import JOB, WHO
from real.cluster import PYTHON, Cluster, free_ports
from real.nodes import REPOSITORY, wait_for

pytestmark = [pytest.mark.sweep, pytest.mark.torch, pytest.mark.timeout(3600)]

EXAMPLES = REPOSITORY / "examples" / "slurm"
TRAIN = Path(__file__).with_name("train.py")


def submit_example(cluster: Cluster, name: str, *how: str) -> tuple[str, Path]:
    """The example as it is, but for the port, the ranks per node and the program."""
    folder = cluster.folder(name)
    text = (EXAMPLES / "training.sbatch").read_text()
    for was, now in (
        ("MASTER_PORT=29500", f"MASTER_PORT={free_ports(1)[0]}"),
        ("--nproc-per-node 8", "--nproc-per-node 1"),
        ("train.py", f"{TRAIN} {' '.join(how)}"),
    ):
        assert was in text
        text = text.replace(was, now)
    (folder / "training.sbatch").write_text(text)
    environ = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    options = ("--parsable", "--nodes=3", "--output=out.txt", "training.sbatch")
    job = cluster.login.must("env", f"--chdir={folder}", "sbatch", *options, **environ)
    return job.strip(), folder


def field(cluster: Cluster, job: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", cluster.login.must("scontrol", "show", "job", job))
    assert found
    return found[1]


def test_a_rank_that_raises_ends_the_job_with_the_code_that_forbids_a_retry(cluster: Cluster) -> None:
    job, folder = submit_example(cluster, "raises", "raise")
    cluster.wait_for_job(job, "FAILED", "COMPLETED", "NODE_FAIL")
    said = (folder / "out.txt").read_text()

    assert field(cluster, job, "ExitCode") == "93:0", said
    assert "VERDICT v1 cause=rank-lost " in said
    assert "do not retry: see the verdict above" in said
    attempt = folder / "forkpoint-runs" / f"slurm-{job}" / "attempt_0"
    assert sorted(path.name for path in attempt.iterdir() if path.is_dir()) == ["node1", "node2", "node3"]
    again = cluster.forkpoint("diagnose", str(attempt), "--json")
    assert json.loads(again.out)["suspects"] == [1]


def test_a_rank_that_is_killed_has_the_job_requeued_and_it_then_passes(cluster: Cluster) -> None:
    job, folder = submit_example(cluster, "killed", "kill", "once")
    cluster.wait_for_job(job, "COMPLETED", "FAILED")
    said = (folder / "out.txt").read_text()

    assert (field(cluster, job, "JobState"), field(cluster, job, "Restarts")) == ("COMPLETED", "1"), said
    assert field(cluster, job, "ExitCode") == "0:0"
    runs = sorted(path.name for path in (folder / "forkpoint-runs").iterdir())
    assert runs[0] == f"slurm-{job}", runs


def test_the_epilog_writes_what_the_doctor_found_on_every_node_and_drains_none(cluster: Cluster) -> None:
    example = (EXAMPLES / "epilog.sh").read_text()
    epilog, log = cluster.root / "epilog.sh", cluster.root / "disk" / "log"
    before = epilog.read_text()
    text = example.replace("/var/log/forkpoint", str(log)).replace("/opt/forkpoint/bin", str(Path(PYTHON).parent))
    assert text.count(str(log)) == 1
    assert text.count(str(Path(PYTHON).parent)) == 1
    epilog.write_text(text)
    try:
        job = cluster.submit("true", "--nodes=2", "--output=/dev/null")
        cluster.wait_for_job(job, "COMPLETED")
        wait_for(
            lambda: set(cluster.node_states().values()) == {"idle"}, f"the epilog has ended: {cluster.node_states()}"
        )
    finally:
        epilog.write_text(before)

    for name in ("node1", "node2"):
        report = json.loads(cluster.nodes[name].must("cat", f"{log}/job-{job}.json"))
        assert report["schema"] == "forkpoint.doctor/1"
        assert {result["check"] for result in report["results"]} >= {"xids", "gpu-ecc"}


@pytest.fixture
def hanging(cluster: Cluster) -> str:
    """Four ranks on four nodes. Rank 2 took another branch; its clock is seven minutes behind."""
    folder = cluster.folder("hanging")
    rank = (
        f'if [ "$SLURM_PROCID" = {WHO} ]; then export {cluster.clock(-7 * 60)}; fi; '
        "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=0 LOCAL_WORLD_SIZE=1; "
        f"exec {shlex.quote(PYTHON)} {shlex.quote(str(JOB))} branch {folder} >{folder}/log_rank_$RANK.txt 2>&1"
    )
    settings = "OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo FORKPOINT=1 FORKPOINT_STALL_S=3000"
    address = f"MASTER_ADDR=node1 MASTER_PORT={free_ports(1)[0]}"
    script = f"cd {folder}\nexport {settings} {address}\nsrun --kill-on-bad-exit=0 sh -c {shlex.quote(rank)}"
    job = cluster.submit(script, "--nodes=4", "--ntasks-per-node=1", "--no-kill", f"--output={folder}/out.txt")
    wait_for(lambda: all((folder / f"begun_{rank}").exists() for rank in range(4)), "all ranks have begun")
    yield job
    cluster.login.run("scancel", "--signal=KILL", job)
    shutil.rmtree(folder)


def attach(cluster: Cluster, job: str, *, on: str = "login") -> tuple[dict, str]:
    node = cluster.login if on == "login" else cluster.nodes[on]
    said = node.run("forkpoint", "attach", "--job", job, "--node-python", PYTHON, "--node-timeout", "240", "--json")
    assert said.out, said.err
    return json.loads(said.out), said.err


def test_attach_asks_the_ranks_of_a_slurm_job_on_all_its_nodes_from_anywhere(cluster: Cluster, hanging: str) -> None:
    line = next(n for n, text in enumerate(JOB.read_text().splitlines(), 1) if "# here: branch" in text)

    def look(on: str) -> dict:
        """Ranks may still be on their way to where they hang."""
        found = {}

        def is_there() -> bool:
            found.update(verdict=(told := attach(cluster, hanging, on=on))[0], said=told[1])
            return found["verdict"]["suspects"] == [WHO]

        wait_for(is_there, f"rank {WHO} is named: {found}")
        return found

    for on in ("login", "node1"):
        found = look(on)
        assert f"job.py:{line}" in json.dumps(found["verdict"])
        assert all(f"node{number}: 1 ranks" in found["said"] for number in range(1, 5)), found["said"]

    cluster.nodes["node4"].freeze()  # if it crashed, gloo would end all ranks
    verdict, said = attach(cluster, hanging)
    assert any(note.startswith("node4: Slurm cannot reach node4") for note in verdict["coverage"]["notes"]), said
    assert any(note.startswith("rank 3: not asked") for note in verdict["coverage"]["notes"]), verdict["coverage"]
