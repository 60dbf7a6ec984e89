"""OpenSSH: four hosts, and what can be wrong with each of them."""

import json
import time

import pytest

from cluster.machines import hung_job
from real.cluster import NAMES, PYTHON, Cluster
from real.nodes import wait_for

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

ASK = ("diagnose", "--cluster", "ssh", "--node-python", PYTHON, "--json")


def hosts(*names: str) -> tuple[str, str]:
    return "--hosts", ",".join(names or NAMES)


def notes(verdict: dict) -> dict[str, str]:
    """By host."""
    split = (note.partition(": ") for note in verdict["coverage"]["notes"])
    return {name: text for name, _, text in split if name in NAMES}


def test_the_hosts_give_the_verdict_of_their_dumps_and_the_dumps_it_rests_on(cluster: Cluster) -> None:
    fetched = cluster.folder("fetched")

    said = cluster.forkpoint(*ASK, *hosts(), cluster.dumps, "--representatives", str(fetched))

    verdict = json.loads(said.out)
    assert (said.code, verdict["cause"], verdict["suspects"]) == (1, "host-stall", [7]), said
    assert verdict["coverage"]["dumps"] == 8
    assert (fetched / "nccl_trace_rank_7").read_bytes() == hung_job(8).dump(7)


def test_a_login_that_greets_costs_nothing(cluster: Cluster) -> None:
    """Bash reads ~/.bashrc for commands of ssh as well, and many of those say something."""
    for node in cluster.nodes.values():
        node.put("home/.bashrc", b"echo Welcome; printf '\\033[2J'; seq 500; echo quota: 99 % >&2\n")
    out, fetched = cluster.root / "tests" / "greeted", cluster.folder("fetched-greeted")

    told = cluster.forkpoint(*ASK, *hosts(), cluster.dumps, "--representatives", str(fetched))
    copied = cluster.forkpoint("collect", *cluster.places, "-o", str(out))

    assert json.loads(told.out)["suspects"] == [7]
    assert sorted(path.name for path in fetched.iterdir()) == ["nccl_trace_rank_0", "nccl_trace_rank_7"]
    assert (copied.code, copied.err) == (0, "")
    assert len(list(out.rglob("nccl_trace_rank_*"))) == 8


def test_without_a_path_torchs_usual_places_are_looked_at(cluster: Cluster) -> None:
    cluster.nodes["node2"].put("home/.cache/torch/comm_lib_trace_rank_3", hung_job(8).dump(3))
    out = cluster.root / "tests" / "usual"

    said = cluster.forkpoint("collect", "ssh:node2:", "-o", str(out))

    assert said.code == 0, said
    assert [path.name for path in out.rglob("*rank_*")] == ["comm_lib_trace_rank_3"]


@pytest.fixture
def broken(cluster: Cluster) -> Cluster:
    """node2 refuses the key, node3 has another host key, node4 is down. node1 is well."""
    root = cluster.root
    keys = {name: (root / f"authorized_keys_{name}").read_bytes() for name in ("node2",)}
    (root / "authorized_keys_node2").write_text("")
    known = (root / "known_hosts").read_text()
    other = (root / "another_key.pub").read_text().split()[1]
    mine = (root / "host_key_node3.pub").read_text().split()[1]
    (root / "known_hosts").write_text(known.replace(mine, other))
    cluster.nodes["node4"].crash()
    yield cluster
    (root / "known_hosts").write_text(known)
    for name, text in keys.items():
        (root / f"authorized_keys_{name}").write_bytes(text)


EXPECTED = {
    "node2": ("it refuses your key", "ssh-copy-id node2", "Permission denied (publickey)"),
    "node3": ("its ssh host key has changed", "Ask its administrator", "Host key verification failed"),
    "node4": ("no ssh server answers there", "ask again once it is back", "Connection refused"),
}


def assert_told(told: dict[str, str]) -> None:
    for host, words in EXPECTED.items():
        assert [word for word in words if word not in told[host]] == [], told[host]


def test_a_refused_key_a_changed_host_key_and_a_host_that_is_down_are_told_apart_and_the_rest_is_used(
    broken: Cluster,
) -> None:
    said = broken.forkpoint(*ASK, *hosts(), broken.dumps)

    verdict = json.loads(said.out)
    assert_told(notes(verdict))
    assert verdict["coverage"]["dumps"] == 2
    assert verdict["suspects"] == []  # whoever was not asked is not accused

    out = broken.root / "tests" / "broken"
    copied = broken.forkpoint("collect", *broken.places, "-o", str(out), "--json")

    manifest = json.loads(copied.out)
    assert_told({note["place"].split(":")[1]: note["text"] for note in manifest["notes"]})
    assert (copied.code, {file["place"] for file in manifest["files"]}) == (0, {broken.places[0]})
    assert json.loads((out / "manifest.json").read_text()) == manifest


def test_where_no_host_answers_every_reason_is_told_and_nothing_is_said_about_the_job(broken: Cluster) -> None:
    said = broken.forkpoint(*ASK, *hosts("node2", "node3", "node4"), broken.dumps)
    attached = broken.forkpoint("attach", *hosts("node2", "node3", "node4"), "--node-python", PYTHON)

    assert (said.code, said.out, attached.code) == (3, "", 2)
    for err in (said.err, attached.err):
        lines = (line.removeprefix("forkpoint:   ").partition(": ") for line in err.splitlines())
        assert_told({host: text for host, _, text in lines if host in EXPECTED})


def test_a_host_key_that_nobody_has_accepted_is_not_accepted_by_us(cluster: Cluster) -> None:
    known = cluster.root / "known_hosts"
    before = known.read_text()
    known.write_text("")
    try:
        said = cluster.forkpoint("collect", cluster.places[0], "-o", str(cluster.root / "tests" / "unknown"))
        after = known.read_text()
    finally:
        known.write_text(before)

    assert (said.code, after) == (3, "")
    assert "its ssh host key is not known here" in said.err
    assert "compare the fingerprint" in said.err


def test_half_of_the_hosts_are_frozen_and_the_other_half_is_used(cluster: Cluster) -> None:
    for name in ("node2", "node3"):
        cluster.nodes[name].freeze()

    said = cluster.forkpoint(*ASK, *hosts(), cluster.dumps)

    verdict = json.loads(said.out)
    assert verdict["coverage"]["dumps"] == 4
    assert verdict["suspects"] == []
    told = notes(verdict)
    assert sorted(told) == ["node2", "node3"]
    assert all(f"{name} does not answer: it is down, frozen or disconnected" in text for name, text in told.items())


def test_a_host_whose_disk_does_not_answer_is_given_up_and_nothing_stays_there(cluster: Cluster) -> None:
    for name in ("node1", "node4"):
        cluster.nodes[name].must("mkfifo", f"{cluster.dumps}/log_rank_9.txt")

    said = cluster.forkpoint(*ASK, *hosts(), cluster.dumps, "--node-timeout", "60")

    assert json.loads(said.out)["coverage"]["dumps"] == 8  # nobody waits for a pipe in a folder

    for name in ("node1", "node4"):
        cluster.nodes[name].must("sh", "-c", f"rm -r {cluster.dumps} && mkfifo {cluster.dumps}")

    said = cluster.forkpoint(*ASK, *hosts(), cluster.dumps, "--node-timeout", "30")

    verdict = json.loads(said.out)
    assert verdict["coverage"]["dumps"] == 4
    told = notes(verdict)
    assert all("no answer after 30 s" in told[name] and "--node-timeout" in told[name] for name in ("node1", "node4"))
    # The node's own `timeout` ends it, at about the moment at which nobody here waits any more.
    left = ("pgrep", "--full", "forkpoint summarise")
    wait_for(lambda: cluster.nodes["node1"].run(*left).out == "", "nothing of it runs there any more")


def test_a_clock_that_is_minutes_behind_is_told_and_its_files_are_not_called_old(cluster: Cluster) -> None:
    """Recorders say that the job began just now; node3 wrote its log then, by a clock that is seven minutes behind."""
    settings, node = cluster.root / "sshd_config_node3", cluster.nodes["node3"]
    before = settings.read_text()
    settings.write_text(before.replace("SetEnv ", f"SetEnv {cluster.clock(-7 * 60)} "))
    node.crash()
    node.start()
    try:
        node.put("dumps/log_rank_4.txt", b"[rank4]: step 12\n")
        node.must("touch", "--date=7 minutes ago", f"{cluster.dumps}/log_rank_4.txt")
        out = cluster.root / "tests" / "clocks"
        said = cluster.forkpoint("collect", *cluster.places, "-o", str(out), "--json")
    finally:
        settings.write_text(before)
        node.crash()
        node.start()

    manifest = json.loads(said.out)
    (note,) = manifest["notes"]
    assert note["place"] == cluster.places[2]
    assert "its clock is 7 minutes behind this machine's" in note["text"]
    (log,) = (file for file in manifest["files"] if file["kind"] == "log")
    assert abs(log["modified"] - time.time()) < 200
    assert log["stale"] is None
