"""Connections of this process, from /proc; limits how many stay open on one node."""
import os
import socket
import threading
import time

LIMITS = {1: 0}  # node -> connections allowed to peers on high ports; others: no limit


def transferred(sock):
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int.from_bytes(info[120:128], "little")


def peers():
    """Established connections to other ranks, the busiest first."""
    store = int(os.environ["MASTER_PORT"])
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            sock = socket.socket(fileno=os.dup(fd))
            ports = sock.getpeername()[1], sock.getsockname()[1]
            if sock.family in (socket.AF_INET, socket.AF_INET6) and store not in ports:
                found.append((transferred(sock), fd, sock))
        except (OSError, IndexError, TypeError):
            continue
    return sorted(found, key=lambda item: item[:2], reverse=True)


class Monitor(threading.Thread):
    def __init__(self, rank):
        super().__init__(daemon=True, name="connections")
        self.limit = LIMITS.get(rank)

    def run(self):
        time.sleep(1.0)
        if self.limit is None:
            return
        for _, _, sock in peers()[self.limit :][:1]:
            sock.shutdown(socket.SHUT_RDWR)
