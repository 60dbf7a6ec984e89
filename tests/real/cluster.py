"""A login node and compute nodes with Debian's Slurm (munged, slurmctld, slurmd) and OpenSSH, all on loopback."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from cluster.machines import hung_job
from real.nodes import BIN, Node, Said, wait_for, why_no_nodes

NAMES = ("node1", "node2", "node3", "node4")
PYTHON = str(BIN / "python")
ADDRESSES = {name: f"127.0.0.{10 + number}" for number, name in enumerate(("login", *NAMES))}
"""All of loopback. A node's name leads to its own, or torchrun would take two nodes for one."""
_CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) { const char *told = getenv("CLOCK_AHEAD_S"); return told ? atol(told) : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}
time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
"""
"""Another time of day for one process. Debian's libfaketime breaks the sleep of Python 3.11."""
_PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "munged": "munge",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "cc": "gcc",
}


def why_no_cluster() -> str | None:
    missing = [package for program, package in _PROGRAMS.items() if not _find(program)]
    if missing:
        return f"{', '.join(missing)}: not installed, and `make servers` could not (as root: apt-get install)"
    return why_no_nodes()


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    with_sockets = [socket.socket() for _ in range(count)]
    try:
        for one in with_sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in with_sockets]
    finally:
        for one in with_sockets:
            one.close()


@dataclass
class Cluster:
    root: Path
    login: Node
    nodes: dict[str, Node]

    @property
    def dumps(self) -> str:
        """One path, behind which each node has its own."""
        return str(self.root / "disk" / "dumps")

    @property
    def places(self) -> list[str]:
        return [f"ssh:{name}:{self.dumps}" for name in self.nodes]

    def plant(self, *names: str) -> None:
        """Two ranks' dumps on each node. The last rank of all left before the last call, and the others wait for it."""
        job = hung_job(2 * len(self.nodes))
        clean = f"rm -rf {self.dumps} {self.root}/disk/home; mkdir {self.root}/disk/home"
        for number, (name, node) in enumerate(self.nodes.items()):
            node.must("sh", "-c", clean)
            for rank in (2 * number, 2 * number + 1) if name in (names or self.nodes) else ():
                node.put(f"dumps/nccl_trace_rank_{rank}", job.dump(rank))

    def folder(self, name: str) -> Path:
        """For one test, seen by all nodes."""
        path = self.root / "tests" / name
        path.mkdir(parents=True)
        return path

    def forkpoint(self, *argv: str, **environ: str) -> Said:
        """On the login node, as a person there would type it."""
        return self.login.run("forkpoint", *argv, **environ)

    def node_states(self) -> dict[str, str]:
        listed = self.login.must("sinfo", "--Node", "--noheader", "--format=%N %T")
        return dict(line.split() for line in listed.splitlines())

    def job_state(self, job: str) -> str:
        told = self.login.run("scontrol", "show", "job", job)
        return told.out.partition("JobState=")[2].split(" ")[0] if told.code == 0 else "GONE"

    def submit(self, script: str, *options: str, **environ: str) -> str:
        """The job's number."""
        path = self.root / "submitted.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        return self.login.must("sbatch", "--parsable", *options, str(path), **environ).strip()

    def wait_for_job(self, job: str, *states: str) -> None:
        wait_for(
            lambda: self.job_state(job).startswith(states), f"job {job} is {' or '.join(states)}: {self.job_state(job)}"
        )

    def set_clock(self, name: str, ahead_s: int) -> None:
        """Of munged and slurmd there, from when the node starts again until `repair`."""
        (self.root / f"clock-{name}").write_text(str(ahead_s))

    def clock(self, ahead_s: int) -> str:
        """Variables for a process that is to have another time of day."""
        return f"LD_PRELOAD={self.root}/clock.so CLOCK_AHEAD_S={ahead_s}"

    def start_controller(self) -> None:
        self.login.must("sh", "-c", f"{_find('slurmctld')} -f {self.root}/slurm.conf")

    def repair(self) -> None:
        """All nodes as they were: up, on time, and without jobs."""
        for clock in self.root.glob("clock-node*"):
            clock.unlink()
            self.nodes[clock.name.removeprefix("clock-")].crash()
        self.login.run("scancel", "--user=root", "--signal=KILL")
        for node in self.nodes.values():
            if node._process is None:
                node.start()
            else:
                node.thaw()
        for name in self.nodes:
            self.login.run("scontrol", "update", f"nodename={name}", "state=resume")
        wait_for(lambda: set(self.node_states().values()) == {"idle"}, f"all nodes are idle: {self.node_states()}")


@contextmanager
def running_cluster(slurm_conf: Sequence[str] = ()) -> Iterator[Cluster]:
    root = Path(mkdtemp(prefix="forkpoint-real-"))
    ports = free_ports(1 + 2 * len(NAMES))
    slurm_ports, ssh_ports = ports[: 1 + len(NAMES)], ports[1 + len(NAMES) :]
    _write_settings(root, slurm_ports, ssh_ports, slurm_conf)
    environ = {"SLURM_CONF": f"{root}/slurm.conf"}
    login = Node("login", root, _login_commands(root), environ)
    nodes = {name: Node(name, root, _node_commands(root, name), environ) for name in NAMES}
    cluster = Cluster(root, login, nodes)
    try:
        login.start()
        for node in nodes.values():
            node.start()
        cluster.repair()
        yield cluster
    finally:
        for node in (*nodes.values(), login):
            if node._process is not None:
                node.crash()
        shutil.rmtree(root, ignore_errors=True)


def _write_settings(root: Path, slurm_ports: list[int], ssh_ports: list[int], more: Sequence[str]) -> None:
    for folder in ("state", "disk", *(f"spool/{name}" for name in NAMES)):
        (root / folder).mkdir(parents=True)
    root.chmod(0o755)  # sshd refuses keys below folders that others may write to
    (root / "hosts").write_text(
        "".join(f"{at} {name}\n" for name, at in {"localhost": "127.0.0.1", **ADDRESSES}.items())
    )
    (root / "clock.c").write_text(_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", root / "clock.so", root / "clock.c"], check=True)
    (root / "epilog.sh").write_text("#!/bin/sh\n")
    (root / "epilog.sh").chmod(0o755)
    (root / "munge.key").write_bytes(os.urandom(1024))
    (root / "munge.key").chmod(0o400)
    (root / "slurm.conf").write_text("\n".join([*_slurm_conf(root, slurm_ports), *more, ""]))
    for name in ("user_key", "another_key"):
        _make_key(root / name)
    known: list[str] = []
    for name, port in zip(NAMES, ssh_ports, strict=True):
        _make_key(root / f"host_key_{name}")
        shutil.copy(root / "user_key.pub", root / f"authorized_keys_{name}")
        known.append(f"[{ADDRESSES[name]}]:{port} {(root / f'host_key_{name}.pub').read_text()}")
        (root / f"sshd_config_{name}").write_text(_sshd_conf(root, name, port))
    (root / "known_hosts").write_text("".join(known))
    aliases = "".join(
        f"Host {name}\n  HostName {ADDRESSES[name]}\n  Port {port}\n"
        for name, port in zip(NAMES, ssh_ports, strict=True)
    )
    common = (
        f"Host node*\n  IdentityFile {root}/user_key\n  IdentitiesOnly yes\n  UserKnownHostsFile {root}/known_hosts\n"
    )
    (root / "ssh_config").write_text(aliases + common)


def _slurm_conf(root: Path, ports: list[int]) -> list[str]:
    nodes = [
        f"NodeName={name} NodeHostname={name} NodeAddr={ADDRESSES[name]} Port={port} CPUs=4"
        for name, port in zip(NAMES, ports[1:], strict=True)
    ]
    return [
        "ClusterName=real",
        f"SlurmctldHost=login({ADDRESSES['login']})",
        f"SlurmctldPort={ports[0]}",
        "SlurmUser=root",
        # A requeued job waits for as long as credentials live, by default two minutes.
        f"AuthInfo=socket={root}/disk/munge.sock,cred_expire=20",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/slurmctld.pid",
        f"SlurmdPidFile={root}/slurmd-%n.pid",
        f"SlurmctldLogFile={root}/slurmctld.log",
        f"SlurmdLogFile={root}/slurmd-%n.log",
        # Containers and small machines give no cgroups to a daemon that did not start there.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "SlurmdTimeout=20",
        "KillWait=5",
        "MinJobAge=300",
        f"Epilog={root}/epilog.sh",
        "SchedulerParameters=sched_min_interval=0",
        *nodes,
        "PartitionName=all Nodes=ALL Default=YES State=UP",
    ]


def _sshd_conf(root: Path, name: str, port: int) -> str:
    return (
        f"Port {port}\nListenAddress {ADDRESSES[name]}\nHostKey {root}/host_key_{name}\nPidFile none\n"
        f"AuthorizedKeysFile {root}/authorized_keys_{name}\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"UsePAM no\nStrictModes no\nSetEnv HOME={root}/disk/home\n"
    )


def _make_key(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
    )


def _munge(root: Path) -> str:
    """Each node has its own, with the one key: a node whose clock is off cannot read what others sign."""
    own = (("socket", "sock"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))
    options = " ".join(f"--{option}={root}/disk/munge.{end}" for option, end in own)
    return f"munged --force --key-file={root}/munge.key --num-threads=2 {options}"


def _login_commands(root: Path) -> list[str]:
    return [_munge(root), f"{_find('slurmctld')} -D -f {root}/slurm.conf &"]


def _node_commands(root: Path, name: str) -> list[str]:
    return [
        "mkdir -p /run/sshd",
        # Both may be told another time by a file; without one they have the machine's.
        f"test ! -e {root}/clock-{name} || export LD_PRELOAD={root}/clock.so CLOCK_AHEAD_S=$(cat {root}/clock-{name})",
        _munge(root),
        f"{_find('slurmd')} -D -N {name} -f {root}/slurm.conf &",
        "unset LD_PRELOAD CLOCK_AHEAD_S",
        f"{_find('sshd')} -D -e -f {root}/sshd_config_{name} &",
    ]
