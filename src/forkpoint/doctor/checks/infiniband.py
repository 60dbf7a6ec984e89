"""InfiniBand and RoCE ports, from sysfs: are they up, as fast as their like, and do their error counters move?

A port that an operator switched off (`Disabled`) is taken as not wanted. A port that is on and has no link, or waits for
a subnet manager (`INIT`, `ARMED`), is bad unless NCCL_IB_HCA leaves it out. Rates are compared between ports of one
board, since storage adapters may rightly be slower. Counters that tell of a bad cable or of lost packets are judged by
what is added between two reads (NCCL's troubleshooting guide; linux-rdma perfquery); those that congestion moves
(port_xmit_wait, port_xmit_discards) and those of adaptive routing (out_of_sequence) are not.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.chosen import is_chosen
from forkpoint.doctor.counters import INTERVAL_S, read_twice
from forkpoint.doctor.odd_speeds import slower_than_others
from forkpoint.doctor.overlay import with_files
from forkpoint.doctor.system import System

ADAPTERS = "/sys/class/infiniband"
_COUNTERS = (
    *(f"counters/{name}" for name in ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors")),
    "counters/local_link_integrity_errors",
    *(f"hw_counters/{name}" for name in ("local_ack_timeout_err", "packet_seq_err", "rnr_nak_retry_err")),
    "hw_counters/implied_nak_seq_err",
)
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
_FIX = (
    "`ibstat` (or `rdma link`) and `perfquery -x` a minute apart; cable, transceiver and switch port are the operator's. A "
    "port that jobs do not use: leave it out with NCCL_IB_HCA, and the doctor does too"
)


@dataclass(frozen=True, slots=True)
class Port:
    adapter: str
    number: str
    board: str
    state: str
    """`ACTIVE`"""
    physical: str
    """`LinkUp`"""
    rate: float | None
    """Gb/s"""
    layer: str

    @property
    def name(self) -> str:
        return f"{self.adapter}/{self.number}"

    @property
    def folder(self) -> str:
        return f"{ADAPTERS}/{self.adapter}/ports/{self.number}"


def look(system: System) -> CheckResult:
    ports = _ports(system)
    if not ports:
        return skipped("no InfiniBand or RoCE adapter is on this machine")
    setting = system.environ.get("NCCL_IB_HCA", "")
    used = [port for port in ports if port.physical != "Disabled" and is_chosen(setting, port.adapter, port.number)]
    if not used:
        return _none_used(ports, setting)
    counters = read_twice(system, [f"{port.folder}/{name}" for port in used for name in _COUNTERS])
    moved = [
        f"{_named(path)} grew by {counter.added} in {INTERVAL_S:g} s"
        for path, counter in counters.items()
        if counter.added
    ]
    details = (
        ("ports", ", ".join(f"{port.name} {port.state} {_gigabits(port)}" for port in used)),
        *((f"count {_named(path)}", str(counter.after)) for path, counter in counters.items()),
    )
    trouble = [*_down(used), *_slow(used), *moved]
    if trouble:
        return bad("; ".join(trouble), _FIX, *details)
    return ok(f"{len(used)} ports are active and no error counter moved in {INTERVAL_S:g} s", *details)


def _none_used(ports: Sequence[Port], setting: str) -> CheckResult:
    names = ", ".join(port.name for port in ports)
    if setting and not any(is_chosen(setting, port.adapter, port.number) for port in ports):
        return bad(
            f"NCCL_IB_HCA={setting} names none of {names}",
            "correct NCCL_IB_HCA: without an adapter NCCL falls back to sockets, or fails where NCCL_NET=IB",
        )
    return skipped(f"every port is switched off: {names}")


def _ports(system: System) -> list[Port]:
    return [
        _port(system, adapter, number)
        for adapter in system.names(ADAPTERS)
        for number in system.names(f"{ADAPTERS}/{adapter}/ports")
    ]


def _port(system: System, adapter: str, number: str) -> Port:
    folder = f"{ADAPTERS}/{adapter}/ports/{number}"
    rate = _RATE.match(system.read(f"{folder}/rate") or "")
    board = system.read(f"{ADAPTERS}/{adapter}/board_id") or system.read(f"{ADAPTERS}/{adapter}/hca_type") or ""
    return Port(
        adapter=adapter,
        number=number,
        board=board.strip(),
        state=_word(system.read(f"{folder}/state")),
        physical=_word(system.read(f"{folder}/phys_state")),
        rate=float(rate[1]) if rate else None,
        layer=(system.read(f"{folder}/link_layer") or "").strip(),
    )


def _word(text: str | None) -> str:
    """`4: ACTIVE` -> `ACTIVE`."""
    return (text or "unknown").rpartition(":")[2].strip()


def _down(ports: Sequence[Port]) -> Iterator[str]:
    for port in ports:
        if port.state != "ACTIVE" or port.physical != "LinkUp":
            yield f"{port.name} is {port.state}, {port.physical}"


def _slow(ports: Sequence[Port]) -> Iterator[str]:
    active = [(port.name, f"{port.board} {port.layer}", port.rate) for port in ports if port.state == "ACTIVE"]
    for name, rate, fastest in slower_than_others([(name, kind, rate) for name, kind, rate in active if rate]):
        yield f"{name} runs at {rate:g} Gb/s, others of its board at {fastest:g}"


def _gigabits(port: Port) -> str:
    return f"{port.rate:g} Gb/s" if port.rate else "no rate"


def _named(path: str) -> str:
    adapter, _, number, _, counter = path.removeprefix(f"{ADAPTERS}/").split("/")
    return f"{adapter}/{number} {counter}"


def inject(system: System) -> System:
    folder = f"{ADAPTERS}/mlx5_0/ports/1"
    return with_files(
        system,
        {
            f"{folder}/state": "1: DOWN\n",
            f"{folder}/phys_state": "2: Polling\n",
            f"{folder}/rate": "10 Gb/sec (4X SDR)\n",
            f"{folder}/link_layer": "InfiniBand\n",
        },
    )


CHECK = Check(
    name="infiniband",
    title="InfiniBand and RoCE ports are up and sound",
    why="A port without a link or with lost packets leaves a collective waiting, on this node or at a peer.",
    look=look,
    inject=inject,
)
