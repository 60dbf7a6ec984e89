"""Slurm: four nodes with slurmd and munged of their own. Nodes fail, jobs wait, end and are arrays, clocks are off."""

import json
import re
from pathlib import Path

import pytest

from real.cluster import NAMES, PYTHON, Cluster
from real.nodes import wait_for

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

FOR_LONG = "sleep 1000"


def ask(cluster: Cluster, job: str, *more: str) -> tuple[int, dict, str]:
    said = cluster.forkpoint(
        "diagnose", "--cluster", "slurm", "--jobid", job, "--node-python", PYTHON, "--json", cluster.dumps, *more
    )
    return said.code, json.loads(said.out or "null"), said.err


def collect(cluster: Cluster, place: str, name: str, *more: str) -> dict:
    out = cluster.root / "tests" / name
    return json.loads(cluster.forkpoint("collect", place, "-o", str(out), "--json", *more).out)


def start(cluster: Cluster, *options: str) -> str:
    job = cluster.submit(FOR_LONG, "--exclusive", "--output=/dev/null", *options)
    cluster.wait_for_job(job, "RUNNING")
    return job


def notes(verdict: dict) -> dict[str, str]:
    return {name: text for name, _, text in (note.partition(": ") for note in verdict["coverage"]["notes"])}


def test_every_node_of_a_running_job_is_asked_beside_it(cluster: Cluster) -> None:
    job = start(cluster, "--nodes=4", "--ntasks-per-node=4", "--mem=0")

    code, verdict, _ = ask(cluster, job)
    manifest = collect(cluster, f"srun:{job}:{cluster.dumps}", "beside")

    assert (code, verdict["cause"], verdict["suspects"], verdict["coverage"]["dumps"]) == (1, "host-stall", [7], 8)
    assert (len(manifest["files"]), manifest["notes"]) == (8, [])
    assert sorted({Path(file["file"]).parts[0] for file in manifest["files"]}) == list(NAMES)
    _, some, _ = ask(cluster, job, "--hosts", "node1,node4")
    assert some["coverage"]["dumps"] == 4


def test_each_node_can_summarise_its_own_dumps_onto_a_shared_disk(cluster: Cluster) -> None:
    shared = cluster.folder("summaries")
    own = f"forkpoint summarise {cluster.dumps} -o {shared}/$SLURMD_NODENAME.fps --origin $SLURMD_NODENAME"

    cluster.login.must("srun", "--nodes=4", "--ntasks-per-node=1", "sh", "-c", own)

    assert sorted(path.stem for path in shared.iterdir()) == list(NAMES)
    said = cluster.forkpoint("diagnose", *map(str, shared.iterdir()), "--json")
    assert json.loads(said.out)["suspects"] == [7]


def test_it_works_from_inside_the_jobs_own_script_whatever_srun_was_told_there(cluster: Cluster) -> None:
    """The batch script's variables are options of every srun in it."""
    out = cluster.root / "tests" / "inside"
    script = f"forkpoint collect srun:$SLURM_JOB_ID:{cluster.dumps} -o {out}"
    told = (
        "SLURM_CPU_BIND=none",
        "SLURM_HINT=nomultithread",
        "SLURM_LABELIO=1",
        "SLURM_KILL_BAD_EXIT=1",
        "SLURM_EXCLUSIVE=user",
    )
    job = cluster.submit(
        f"export {' '.join(told)}; {script}",
        "--nodes=4", "--ntasks-per-node=2", "--cpus-per-task=2", "--mem-per-cpu=1", f"--output={cluster.root}/inside.txt",
    )  # fmt: skip

    cluster.wait_for_job(job, "COMPLETED", "FAILED")
    assert len(list(out.rglob("nccl_trace_rank_*"))) == 8, (cluster.root / "inside.txt").read_text()


def test_a_node_that_crashed_is_named_before_and_after_slurm_knows(cluster: Cluster) -> None:
    """Slurm takes a node that it knows to be down off a job's list, and says nothing."""
    job = start(cluster, "--nodes=4", "--no-kill")
    cluster.nodes["node4"].crash()

    _, verdict, _ = ask(cluster, job)
    told = notes(verdict)["node4"]
    assert "Slurm cannot reach node4: it is down, frozen or disconnected" in told
    assert "scontrol show node node4" in told
    assert verdict["coverage"]["dumps"] == 6
    assert verdict["suspects"] == []

    wait_for(lambda: cluster.node_states()["node4"].startswith("down"), "node4 is known to be down")
    _, verdict, _ = ask(cluster, job)
    assert "lost nodes at" in notes(verdict)["nodes"]
    assert "sinfo --list-reasons" in notes(verdict)["nodes"]
    assert verdict["coverage"]["dumps"] == 6
    manifest = collect(cluster, f"srun:{job}:{cluster.dumps}", "crashed")
    assert "lost nodes at" in manifest["notes"][0]["text"]


def test_half_of_the_nodes_are_frozen_and_the_other_half_is_used(cluster: Cluster) -> None:
    job = start(cluster, "--nodes=4", "--no-kill")
    for name in ("node2", "node3"):
        cluster.nodes[name].freeze()

    _, verdict, _ = ask(cluster, job)

    assert verdict["coverage"]["dumps"] == 4
    assert verdict["suspects"] == []
    for name in ("node2", "node3"):
        assert f"Slurm cannot reach {name}" in notes(verdict)[name] or "no answer after" in notes(verdict)[name]


def test_a_job_that_waits_has_ended_is_unknown_or_is_several_is_told_as_such(cluster: Cluster) -> None:
    waits = cluster.submit(FOR_LONG, "--begin=now+1hour")
    ended = start(cluster, "--nodes=2")
    cluster.login.must("scancel", ended)
    cluster.wait_for_job(ended, "CANCELLED")
    array = cluster.submit(FOR_LONG, "--array=1-2", "--output=/dev/null")
    wait_for(
        lambda: cluster.login.run("squeue", "--noheader", "--states=R", f"--jobs={array}").out.count("\n") == 2,
        "both run",
    )

    said = {job: ask(cluster, job) for job in (waits, ended, array, "999999")}

    assert [code for code, _, _ in said.values()] == [2, 2, 2, 2]
    assert f"job {waits} has no nodes yet (PENDING)" in said[waits][2]
    assert re.search(rf"job {ended} has ended \(CANCELLED\) on node\[1-2\].*--cluster ssh --hosts", said[ended][2])
    assert re.search(rf"job {array} has 2 running tasks: name one, as in {array}_[12]", said[array][2])
    assert "Slurm does not know" in said["999999"][2]
    for task in (1, 2):  # srun takes no such number by itself
        assert len(collect(cluster, f"srun:{array}_{task}:{cluster.dumps}", f"array-{task}")["files"]) in (2, 4)


def test_a_clock_that_is_off_by_more_than_munge_allows_is_told_for_that_node(cluster: Cluster) -> None:
    job = start(cluster, "--nodes=4", "--no-kill")
    node = cluster.nodes["node3"]
    cluster.set_clock("node3", 20 * 60)
    node.crash()
    node.start()
    cluster.plant()

    _, verdict, _ = ask(cluster, job)

    assert verdict["coverage"]["dumps"] == 6, verdict["coverage"]
    assert "slurmd on node3 closed the connection" in notes(verdict)["node3"]
    assert "does its clock differ by less than five minutes" in notes(verdict)["node3"]


def test_without_a_controller_the_next_way_is_told(cluster: Cluster) -> None:
    cluster.login.must("pkill", "--full", "slurmctld -D")
    try:
        code, _, err = ask(cluster, "1")
    finally:
        cluster.start_controller()

    assert code == 2
    assert "slurmctld does not answer (`scontrol ping`)" in err
    assert "--cluster ssh --hosts" in err
