"""A disk without room, of a node or where evidence is copied to, is told as what it is, and what fits is used."""

import json

import pytest

from real.cluster import PYTHON, Cluster

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]


@pytest.fixture
def full(cluster: Cluster) -> str:
    """A folder of the login node on a disk of 300 kB; a log on node2 does not fit into it."""
    small = f"{cluster.root}/small"
    (cluster.root / "small").mkdir(exist_ok=True)
    cluster.login.must("mount", "-t", "tmpfs", "-o", "size=300k", "small", small)
    line = b"[rank3]: step 12 loss 0.31\n"
    cluster.nodes["node2"].put("dumps/log_rank_3.txt", line * (1_000_000 // len(line)))
    yield small
    cluster.login.must("umount", small)


def test_a_copy_that_does_not_fit_is_told_and_small_files_are_there(cluster: Cluster, full: str) -> None:
    said = cluster.forkpoint("collect", *cluster.places, "-o", f"{full}/incident", "--json")

    assert said.code == 0, said.err
    manifest = json.loads(said.out)
    dumps = [file for file in manifest["files"] if file["kind"] == "dump"]
    assert len(dumps) == 8
    (note,) = (note for note in manifest["notes"] if "log_rank_3" in note["text"])
    assert "cannot be written here (No space left on device)" in note["text"]
    assert "choose a folder with more space" in note["text"]
    told = json.loads(cluster.forkpoint("diagnose", f"{full}/incident", "--json").out)
    assert told["suspects"] == [7]


def test_a_disk_without_any_room_is_told_by_every_command_and_none_of_them_crashes(cluster: Cluster, full: str) -> None:
    cluster.login.run("sh", "-c", f"mkdir {full}/incident; cat /dev/zero > {full}/filler")

    collected = cluster.forkpoint("collect", *cluster.places, "-o", f"{full}/incident")
    hosts = ("--cluster", "ssh", "--hosts", "node1,node2,node3,node4", "--node-python", PYTHON)
    kept = cluster.forkpoint("diagnose", *hosts, cluster.dumps, "--keep", f"{full}/all.fps", "--json")
    summed = cluster.forkpoint("summarise", f"{cluster.root}/slurm.conf", "-o", f"{full}/one.fps")
    ran = cluster.forkpoint("run", "--folder", f"{full}/runs", "--", "sh", "-c", "seq 20000; exit 3")

    for said in (collected, kept, summed, ran):
        assert "Traceback" not in said.err, said.err
        assert "No space left on device" in said.err, said
    assert collected.code == 3
    assert json.loads(kept.out)["coverage"]["dumps"] == 8  # the verdict does not need the file
    assert (ran.code, ran.out.count("\n")) == (3, 20000)


def test_a_full_disk_of_a_node_costs_nothing_that_is_on_it(cluster: Cluster) -> None:
    node = cluster.nodes["node4"]
    node.run("sh", "-c", f"cat /dev/zero > {node.disk}/filler")
    try:
        said = cluster.forkpoint(
            "diagnose", "--cluster", "ssh", "--hosts", "node3,node4", "--node-python", PYTHON, cluster.dumps, "--json"
        )
    finally:
        node.must("rm", f"{node.disk}/filler")

    assert json.loads(said.out)["coverage"]["dumps"] == 4
