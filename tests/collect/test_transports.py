"""Other machines, played by small programs on PATH that act as ssh, Slurm and kubectl do, with real tar and find."""

import os
import re
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from collect.planted import WATCHDOG
from forkpoint.errors import UsageError
from forkpoint.evidence import read
from forkpoint.gather.collect import Wanted, collect
from forkpoint.gather.folder import CollectLimits, Manifest
from forkpoint.gather.remote import parse_remote
from forkpoint.gather.tools import CallFailed, answer_of
from looping import for_each
from small_jobs import SmallJob

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift; host=$1; shift
[ "$host" = gone ] && { echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }
[ "$host" = stuck ] && exec sleep 60
[ "$host" = hostile ] && echo forkpoint-begins-here && exec cat "$MACHINES/hostile.tar"
[ "$host" = cut ] && { echo forkpoint-begins-here; cat "$MACHINES/cut.tar"; exit 1; }
HOME=$MACHINES/$host exec sh -c "$*"
"""
SQUEUE = """#!/bin/sh
echo '7|7|RUNNING|node[1-2]'
"""
SCONTROL = """#!/bin/sh
[ "$1 $2 $3" = "show hostnames node[1-2]" ] && printf 'node1\\nnode2\\n'
exit 0
"""
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do case $1 in --nodelist=*) node=${1#--nodelist=};; esac; shift; done
HOME=$MACHINES/$node exec "$@"
"""
KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$MACHINES/asked"
shift
case $1 in
get) [ "$4" = --output=name ] && [ "$3" = '--selector=job-name=llama' ] && printf 'pod/llama-0\\npod/llama-1\\n' ;;
logs) echo "the log of $3" ;;
exec) pod=$3; shift 4; HOME=$MACHINES/$pod exec "$@" ;;
esac
"""


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two nodes and two pods, with a rank's dump in the home of each and its log beside it."""
    tools, root = tmp_path / "bin", tmp_path / "machines"
    tools.mkdir()
    for name, text in {"ssh": SSH, "squeue": SQUEUE, "scontrol": SCONTROL, "srun": SRUN, "kubectl": KUBECTL}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    job = SmallJob(2)
    for _ in range(4):
        job.op()
    job.op([0], state="scheduled")
    for rank in range(2):
        for machine in (f"node{rank + 1}", f"llama-{rank}"):
            cache = root / machine / ".cache" / "torch"
            cache.mkdir(parents=True)
            (cache / f"comm_lib_trace_rank_{rank}").write_bytes(job.dump(rank))
            logs = root / machine / "a b;$(touch broken)'\""
            logs.mkdir()
            (logs / f"log_rank_{rank}.txt").write_text(WATCHDOG.format(rank=rank))
            (logs / "train.py").write_text("secret source")
            (logs / "rank_weights.bin").write_bytes(b"\0" * 100)
            (logs / "link_rank_9.log").symlink_to("/etc/hostname")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("MACHINES", str(root))
    monkeypatch.chdir(tmp_path)
    return root


def gathered(tmp_path: Path, *places: str, **more: object) -> Manifest:
    return collect(Wanted(places, **more), str(tmp_path / "out"))  # type: ignore[arg-type]


def test_ssh_brings_a_folder_with_a_difficult_name_and_only_evidence_of_it(tmp_path: Path, machines: Path) -> None:
    manifest = gathered(tmp_path, *(f"ssh:node{n}:{machines}/node{n}/a b;$(touch broken)'\"" for n in (1, 2)))

    assert sorted(Path(file.origin).name for file in manifest.files) == ["log_rank_0.txt", "log_rank_1.txt"]
    assert {file.file.split("/")[0] for file in manifest.files} == {"node1", "node2"}
    assert not list(tmp_path.rglob("broken"))
    assert manifest.notes == ()


def test_ssh_without_a_path_looks_where_torch_writes(tmp_path: Path, machines: Path) -> None:
    manifest = gathered(tmp_path, "ssh:node1:", "ssh:node2:~/.cache")

    assert [(file.kind, file.modified is not None) for file in manifest.files] == [("dump", True)] * 2
    assert [trace.rank for trace in read([str(tmp_path / "out")]).traces] == [0, 1]


def test_a_host_without_evidence_says_so(tmp_path: Path, machines: Path) -> None:
    (machines / "bare").mkdir()

    manifest = gathered(tmp_path, "ssh:bare:~/")

    assert manifest.files == ()
    assert [note.text for note in manifest.notes] == ["nothing found there"]


def test_every_node_of_a_slurm_job_is_visited(tmp_path: Path, machines: Path) -> None:
    manifest = gathered(tmp_path, "srun:4711")

    assert sorted(file.file.split("/")[0] for file in manifest.files) == ["node1", "node2"]
    assert manifest.notes == ()


def test_every_pod_gives_its_files_and_its_log(tmp_path: Path, machines: Path) -> None:
    manifest = gathered(tmp_path, "kubectl:train/job-name=llama")

    assert sorted(file.kind for file in manifest.files) == ["dump", "dump", "log", "log"]
    assert (tmp_path / "out" / "llama-1" / "llama-1.log").read_text() == "the log of llama-1\n"
    assert all(line.startswith("--namespace=train ") for line in (machines / "asked").read_text().splitlines())


def test_a_host_that_is_gone_or_stuck_or_not_installed_is_a_note_and_others_go_on(
    tmp_path: Path, machines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = gathered(tmp_path, "ssh:gone:/x", "ssh:stuck:/x", "ssh:node1:", limits=CollectLimits(seconds=20))
    monkeypatch.setenv("PATH", "/nonexistent")
    without = collect(Wanted(("srun:4711",)), str(tmp_path / "without"))

    assert len(manifest.files) == 1
    assert "exit code 255 (ssh: connect to host gone port 22: No route to host)" in manifest.notes[0].text
    assert re.search(r"not done after \d+ s", manifest.notes[1].text)  # less than 20: the limit is that of all hosts
    assert (without.files, "cannot be run" in without.notes[0].text) == ((), True)


def hostile_tar() -> bytes:
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, kind, link in [
            ("link_rank_1.log", tarfile.SYMTYPE, "/etc"),
            ("hard_rank_1.log", tarfile.LNKTYPE, "/etc/passwd"),
            ("device_rank_1.log", tarfile.CHRTYPE, ""),
            ("pipe_rank_1.log", tarfile.FIFOTYPE, ""),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
        for name in (
            "../../escaped_rank_1.log",
            "/absolute_rank_2.log",
            "link_rank_1.log/x_rank_3.log",
            ".hidden/rank_4.log",
        ):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, BytesIO(b"evil\n"))
    return data.getvalue()


def test_links_devices_and_ways_out_of_the_folder_lead_nowhere(tmp_path: Path, machines: Path) -> None:
    (machines / "hostile.tar").write_bytes(hostile_tar())

    manifest = gathered(tmp_path, "ssh:hostile:/x")

    out = tmp_path / "out"
    there = [path for path in out.rglob("*") if not path.is_dir()]
    assert len(manifest.files) == 4
    assert all(path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(out) for path in there)
    assert not list(tmp_path.glob("escaped*"))
    assert "4 links, devices or pipes were sent and not kept" in [note.text for note in manifest.notes]


def test_a_sender_that_never_stops_is_stopped_by_the_budget(tmp_path: Path, machines: Path) -> None:
    """Its tar claims ten gigabytes, and its pipe would give them."""
    info = tarfile.TarInfo("endless_rank_0.log")
    info.size = 10 << 30
    (machines / "head").write_bytes(info.tobuf())
    (tmp_path / "bin" / "ssh").write_text(
        '#!/bin/sh\necho forkpoint-begins-here; cat "$MACHINES/head"; exec yes evil\n'
    )

    manifest = gathered(tmp_path, "ssh:node1:/x", limits=CollectLimits(total_bytes=1 << 20))

    (file,) = manifest.files
    assert (file.size, file.cut) == (1 << 20, f"only {1 << 20} of {10 << 30} bytes are here")


def test_what_came_before_a_connection_broke_is_kept(tmp_path: Path, machines: Path) -> None:
    whole = BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for rank in range(2):
            info = tarfile.TarInfo(f"log_rank_{rank}.txt")
            info.size = 5000
            archive.addfile(info, BytesIO(b"step\n" * 1000))
    (machines / "cut.tar").write_bytes(whole.getvalue()[:8000])

    manifest = gathered(tmp_path, "ssh:cut:/x")

    assert manifest.files[0].size == 5000
    assert any("stopped sending" in note.text or "exit code 1" in note.text for note in manifest.notes)


@for_each(
    "place",
    [
        "ssh:-oProxyCommand=touch:/x", "ssh::/x", "ssh:node 1:/x", "ssh:node1:relative", "ssh:node1:/x\n/y", "ssh:node1:-x",
        "srun:", "srun:1;2", "srun:--help", "srun:12:x", "kubectl:a", "kubectl:-n/x", "kubectl:a/--all", "kubectl:A/x",
    ],
)  # fmt: skip
def test_a_place_that_could_be_an_option_or_a_command_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="must"):
        parse_remote(place)


def test_addresses_of_fsspec_are_read_through_it(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/forkpoint-test/rank_0/train.log", WATCHDOG.format(rank=0).encode())
    memory.pipe("/forkpoint-test/weights.bin", b"\0" * 10)
    (tmp_path / "log_rank_1.txt").write_text(WATCHDOG.format(rank=1))
    try:
        manifest = gathered(
            tmp_path, "memory://forkpoint-test", f"file://{tmp_path}/log_rank_1.txt", "memory://nowhere"
        )
    finally:
        memory.rm("/forkpoint-test", recursive=True)

    assert sorted(Path(file.origin).name for file in manifest.files) == ["log_rank_1.txt", "train.log"]
    assert [note.place for note in manifest.notes] == ["memory://nowhere"]


def test_an_address_that_no_driver_knows_says_what_is_missing(tmp_path: Path) -> None:
    manifest = gathered(tmp_path, "nosuch://x")

    assert manifest.files == ()
    assert "nosuch" in manifest.notes[0].text


def test_a_tool_is_ended_when_its_time_is_up() -> None:
    said = answer_of(("sleep", "60"), 0.2)

    assert isinstance(said, CallFailed)
    assert "not done after" in said.why
