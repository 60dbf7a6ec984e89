"""Forks the ranks of `forkpoint lab collectives`, each into the namespace that is named: SPACE,SPACE,... ARGUMENTS..."""

import ctypes
import os
import sys
from pathlib import Path

from namespaces import NET

from forkpoint.lab.jobs.collectives.__main__ import main

CLONE_NEWNET = 0x40000000


def enter(space: str) -> None:
    with Path(f"/run/netns/{space}").open() as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")


def run(rank: int, spaces: list[str]) -> None:
    enter(spaces[rank])
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(spaces)), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "eth0"}
    os.environ |= {"MASTER_ADDR": f"{NET}.1", "MASTER_PORT": "29511", "OMP_NUM_THREADS": "1"}
    code = 4
    try:
        code = main()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    names = sys.argv.pop(1).split(",")
    children = []
    for number in range(len(names)):
        child = os.fork()
        if not child:
            run(number, names)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(ended[0])
