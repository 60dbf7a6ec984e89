"""ssh and Slurm, played by small programs on PATH that run what they are given in a real shell, with real forkpoint."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.machines import PATHS, essence, hung_job, make_slow, plant
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.evidence import read
from forkpoint.gather.cluster import ClusterSummary, fetch_representatives, gather, records_of, with_representatives
from forkpoint.gather.engines import ClusterReach, Engine, open_engine
from forkpoint.gather.tools import CallFailed
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift; host=$1; shift
case $host in
gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
loud) echo "Welcome to loud!" ;;
garbage) exec head -c 5000 /dev/zero ;;
cut) HOME=$MACHINES/$host sh -c "$*" | head -c 700; exit 0 ;;
esac
HOME=$MACHINES/$host exec sh -c "$*"
"""
SQUEUE = """#!/bin/sh
[ "$2" = --jobs=7 ] && echo '7|7|RUNNING|node[1-2]'
exit 0
"""
SCONTROL = """#!/bin/sh
[ "$1 $2 $3" = "show hostnames node[1-2]" ] && printf 'node1\\nnode2\\n'
exit 0
"""
SRUN = """#!/bin/sh
printf '%s\\n' "$*" | head -n 1 >> "$MACHINES/asked"
while [ "${1#--}" != "$1" ]; do case $1 in --nodelist=*) node=${1#--nodelist=};; esac; shift; done
HOME=$MACHINES/$node exec "$@"
"""


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools, root = tmp_path / "bin", tmp_path / "machines"
    tools.mkdir()
    for name, text in {"ssh": SSH, "squeue": SQUEUE, "scontrol": SCONTROL, "srun": SRUN}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("MACHINES", str(root))
    return root


def ssh(*hosts: str, node_timeout_s: float = 600.0, python: str = sys.executable) -> Engine:
    return open_engine("ssh", ClusterReach(hosts, node_timeout_s=node_timeout_s, python=python))


def captured(gathered: ClusterSummary, folder: Path) -> Capture:
    path = folder / "all.fps"
    path.write_bytes(gathered.summary)
    return read([str(path)])


def diagnosed(gathered: ClusterSummary, folder: Path) -> Verdict:
    return diagnose(captured(gathered, folder))


def problems(gathered: ClusterSummary) -> dict[str, str]:
    return {problem.file: problem.text for problem in gathered.problems}


def test_what_the_nodes_send_gives_the_verdict_of_the_dumps_themselves(tmp_path: Path, machines: Path) -> None:
    plant(machines, ["node1", "node2"], per_node=2)

    verdict = diagnosed(gather(ssh("node1", "node2"), PATHS), tmp_path)

    assert essence(verdict) == essence(diagnose(read([str(machines)])))
    assert verdict.suspects == (3,)
    assert any(evidence.file.startswith("node2:/") for evidence in verdict.evidence)


def test_a_node_that_is_gone_slow_garbled_cut_or_without_forkpoint_is_named_and_the_rest_goes_on(
    tmp_path: Path, machines: Path
) -> None:
    plant(machines, ["node1", "loud", "cut", "node2"])
    make_slow(machines, "slow")

    engine = ssh("node1", "gone", "slow", "garbage", "loud", "cut", "empty", "node2", node_timeout_s=60.0)
    gathered = gather(engine, PATHS)

    told = problems(gathered)
    assert sorted(told) == ["cut", "empty", "garbage", "gone", "slow"]
    assert "No route to host" in told["gone"]
    assert "no answer after 60 s" in told["slow"]
    assert "--node-timeout" in told["slow"]
    assert "did not answer with a summary" in told["garbage"]
    assert "did not answer with a summary" in told["cut"]
    assert "no such file or directory" in told["empty"]
    verdict = diagnosed(gathered, tmp_path)
    assert verdict.suspects == (3,)
    assert verdict.coverage.dumps == 3
    assert any(note.startswith("gone: ") for note in verdict.coverage.notes)


def test_a_python_without_forkpoint_is_told_from_a_node_without_dumps(machines: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    plant(machines, ["node1"])

    with pytest.raises(UnreadableInput, match="node1: has no forkpoint: pip install forkpoint on node1"):
        gather(ssh("node1", python=str(bare)), PATHS)
    with pytest.raises(UnreadableInput, match="has no forkpoint"):
        gather(ssh("node1", python="no-such-python"), PATHS)


def test_no_path_is_taken_for_a_command_or_an_option(tmp_path: Path, machines: Path) -> None:
    plant(machines, ["node1", "node2"])
    for node in ("node1", "node2"):
        (machines / node / "dumps").rename(machines / node / "a b;$(touch broken)'\" -x")

    gathered = gather(ssh("node1", "node2"), ["~/a b;$(touch broken)'\" -x"])

    assert diagnosed(gathered, tmp_path).suspects == (1,)
    assert not list(tmp_path.rglob("broken"))


def test_slurm_asks_each_node_of_the_job_in_a_step_beside_it(tmp_path: Path, machines: Path) -> None:
    plant(machines, ["node1", "node2"])

    engine = open_engine("slurm", ClusterReach(job="7", python=sys.executable))

    assert diagnosed(gather(engine, PATHS), tmp_path).suspects == (1,)
    asked = sorted((machines / "asked").read_text().splitlines())
    assert [line.partition(" sh -c ")[0] for line in asked] == [
        f"--overlap --jobid=7 --nodes=1 --ntasks=1 --nodelist=node{n} --quiet" for n in (1, 2)
    ]


@pytest.mark.parametrize(
    ("reach", "engine", "says"),
    [
        (ClusterReach(), "ssh", "--hosts"),
        (ClusterReach(("-oProxyCommand=touch",)), "ssh", "is not a host name"),
        (ClusterReach(("node 1",)), "ssh", "is not a host name"),
        (ClusterReach(), "slurm", "--jobid"),
        (ClusterReach(job="--help"), "slurm", "must be srun:JOBID"),
        (ClusterReach(job="8"), "slurm", "--cluster ssh"),
        (ClusterReach(("node3",), job="7"), "slurm", "node3: is not a node of job 7"),
        (ClusterReach(), "monarch", "--hosts tcp://"),
        (ClusterReach(("node1",)), "monarch", "is not the address"),
    ],
)
def test_nodes_that_cannot_be_meant_are_refused(machines: Path, reach: ClusterReach, engine: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        open_engine(engine, reach)


def representatives(machines: Path, tmp_path: Path, before: Callable[[], object]) -> Verdict:
    nodes = ("node1", "node2", "node3")
    plant(machines, nodes, per_node=2)
    engine = ssh(*nodes)
    gathered = gather(engine, PATHS)
    capture = captured(gathered, tmp_path)
    verdict = diagnose(capture)
    before()
    folder = tmp_path / "fetched"
    folder.mkdir()
    fetched = fetch_representatives(verdict, records_of(gathered.summary, capture), engine, nodes, folder)
    return with_representatives(verdict, fetched)


def test_the_suspect_and_one_rank_of_each_cohort_are_fetched_whole(machines: Path, tmp_path: Path) -> None:
    verdict = representatives(machines, tmp_path, before=lambda: None)

    kept = {path.name: path.read_bytes() for path in (tmp_path / "fetched").iterdir()}
    assert kept == {
        "nccl_trace_rank_0": (machines / "node1/dumps/nccl_trace_rank_0").read_bytes(),
        "nccl_trace_rank_5": (machines / "node3/dumps/nccl_trace_rank_5").read_bytes(),
    }
    assert len([note for note in verdict.coverage.notes if "is in" in note]) == 2


def test_of_two_dumps_of_a_rank_the_one_that_was_diagnosed_is_fetched(machines: Path, tmp_path: Path) -> None:
    old = machines / "node3" / "dumps" / "zz_of_an_earlier_attempt_rank_5"
    old.parent.mkdir(parents=True)
    job = hung_job(6)
    job.entries[5] = job.entries[5][:4]
    old.write_bytes(job.dump(5))

    representatives(machines, tmp_path, before=lambda: None)

    new = machines / "node3" / "dumps" / "nccl_trace_rank_5"
    assert (tmp_path / "fetched" / "nccl_trace_rank_5").read_bytes() == new.read_bytes()


def test_a_dump_that_changed_or_went_since_is_said_and_not_kept(machines: Path, tmp_path: Path) -> None:
    def change() -> None:
        dumps = machines / "node3" / "dumps"
        (dumps / "nccl_trace_rank_5").write_bytes((dumps / "nccl_trace_rank_4").read_bytes())
        (machines / "node1" / "dumps" / "nccl_trace_rank_0").unlink()

    verdict = representatives(machines, tmp_path, before=change)

    assert list((tmp_path / "fetched").iterdir()) == []
    notes = [note for note in verdict.coverage.notes if "is not here" in note]
    assert [("has changed since it was summarised" in note, "No such file" in note) for note in notes] == [
        (True, False),
        (False, True),
    ]


def test_no_more_than_a_dump_may_have_is_read(machines: Path) -> None:
    (machines / "node1").mkdir(parents=True)
    with (machines / "node1" / "large").open("wb") as file:
        file.truncate((64 << 20) + 1)

    got = ssh("node1").read_file("node1", str(machines / "node1" / "large"))

    assert isinstance(got, CallFailed)
    assert "larger than a dump" in got.why
