"""Links between nodes: InfiniBand, RoCE and network interfaces."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.doctor.checks.kernel import INTERVAL_S, read_number, read_twice
from forkpoint.doctor.report import CheckResult, bad, check, judged, skipped
from forkpoint.doctor.system import System

# ---------------------------------------------------------------------------------------------------------------------
# Which devices NCCL and gloo are configured to use: `mlx5_0,mlx5_1:1`, `=eth0`, `^docker,lo` (as in NCCL_IB_HCA).


def is_chosen(setting: str, name: str, port: str | None = None) -> bool:
    """A name selects all devices that begin with it; after `=` only that device; after `^` all others.

    An empty setting chooses everything.
    """
    others = setting.startswith("^")
    rest = setting.removeprefix("^")
    exact = rest.startswith("=")
    wanted = [item for item in rest.removeprefix("=").split(",") if item]
    if not wanted:
        return True
    return others != any(_matches(item, name, port, exact=exact) for item in wanted)


def _matches(item: str, name: str, port: str | None, *, exact: bool) -> bool:
    start, _, wanted_port = item.partition(":")
    same = name == start if exact else name.startswith(start)
    return same and (port is None or wanted_port in {"", port})


# ---------------------------------------------------------------------------------------------------------------------
# Ports that are slower than others of the same kind: on one node they should all be alike.


def slower_than_others(speeds: Iterable[tuple[str, str, float]]) -> Iterator[tuple[str, float, float]]:
    """From (name, kind, speed): name and speed of each that is below the fastest of its kind, and that speed."""
    alike: Mapping[str, list[tuple[str, float]]] = defaultdict(list)
    for name, kind, speed in speeds:
        alike[kind].append((name, speed))
    for ports in alike.values():
        fastest = max(speed for _, speed in ports)
        for name, speed in ports:
            if speed < fastest:
                yield name, speed, fastest


ADAPTERS = "/sys/class/infiniband"
_PORT_COUNTERS = (
    *(f"counters/{name}" for name in ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors")),
    "counters/local_link_integrity_errors",
    *(f"hw_counters/{name}" for name in ("local_ack_timeout_err", "packet_seq_err", "rnr_nak_retry_err")),
    "hw_counters/implied_nak_seq_err",
)
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
_INFINIBAND_FIX = (
    "`ibstat` (or `rdma link`) and `perfquery -x` a minute apart; the operator checks cable, transceiver and switch port. A "
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


def _look_at_infiniband(system: System) -> CheckResult:
    """InfiniBand and RoCE ports, from sysfs: are they up, as fast as others of their kind, and do their error counters grow?

    A port that an operator switched off (`Disabled`) is ignored. A port that is on and has no link, or waits for a subnet
    manager (`INIT`, `ARMED`), is bad unless NCCL_IB_HCA excludes it. Rates are compared between ports of one board, since
    storage adapters may rightly be slower. Counters that show a bad cable or lost packets are judged by their growth between
    two reads (NCCL's troubleshooting guide; linux-rdma perfquery); those that congestion (port_xmit_wait,
    port_xmit_discards) or adaptive routing (out_of_sequence) moves are not.
    """
    ports = _ports(system)
    if not ports:
        return skipped("no InfiniBand or RoCE adapter is on this machine")
    setting = system.environ.get("NCCL_IB_HCA", "")
    used = [port for port in ports if port.physical != "Disabled" and is_chosen(setting, port.adapter, port.number)]
    if not used:
        return _none_used(ports, setting)
    counters = read_twice(system, [f"{port.folder}/{name}" for port in used for name in _PORT_COUNTERS])
    moved = [
        f"{_port_counter_name(path)} grew by {counter.added} in {INTERVAL_S:g} s"
        for path, counter in counters.items()
        if counter.added
    ]
    details = (
        ("ports", ", ".join(f"{port.name} {port.state} {_gigabits(port)}" for port in used)),
        *((f"count {_port_counter_name(path)}", str(counter.after)) for path, counter in counters.items()),
    )
    trouble = [*_ports_down(used), *_slow_ports(used), *moved]
    fine = f"{len(used)} ports are active and no error counter moved in {INTERVAL_S:g} s"
    return judged(trouble, _INFINIBAND_FIX, fine, *details)


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
        state=_state_word(system.read(f"{folder}/state")),
        physical=_state_word(system.read(f"{folder}/phys_state")),
        rate=float(rate[1]) if rate else None,
        layer=(system.read(f"{folder}/link_layer") or "").strip(),
    )


def _state_word(text: str | None) -> str:
    """`4: ACTIVE` -> `ACTIVE`."""
    return (text or "unknown").rpartition(":")[2].strip()


def _ports_down(ports: Sequence[Port]) -> Iterator[str]:
    for port in ports:
        if port.state != "ACTIVE" or port.physical != "LinkUp":
            yield f"{port.name} is {port.state}, {port.physical}"


def _slow_ports(ports: Sequence[Port]) -> Iterator[str]:
    active = [(port.name, f"{port.board} {port.layer}", port.rate) for port in ports if port.state == "ACTIVE"]
    for name, rate, fastest in slower_than_others([(name, kind, rate) for name, kind, rate in active if rate]):
        yield f"{name} runs at {rate:g} Gb/s, others of its board at {fastest:g}"


def _gigabits(port: Port) -> str:
    return f"{port.rate:g} Gb/s" if port.rate else "no rate"


def _port_counter_name(path: str) -> str:
    adapter, _, number, _, counter = path.removeprefix(f"{ADAPTERS}/").split("/")
    return f"{adapter}/{number} {counter}"


INFINIBAND = check("infiniband", _look_at_infiniband)


INTERFACES = "/sys/class/net"
_INTERFACE_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "tx_carrier_errors", "rx_missed_errors")
_DROPS = ("rx_dropped", "tx_dropped")
_IS_UP = 0x1
_IS_LOOPBACK = 0x8
_IFNAME_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    up: bool
    """Switched on, and a carrier is seen."""
    loopback: bool
    hardware: str | None
    """Vendor and device id; None for virtual interfaces: bridges, bonds, veth."""
    speed: int | None
    """Mb/s"""
    mtu: int | None


def _look_at_network_interfaces(system: System) -> CheckResult:
    """Network interfaces: do the configured ones exist, are the used ones up, and do their errors grow?

    The used ones are those that NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME select, else the one with the default route. Dropped
    frames are counted in the details and not judged: the kernel also counts frames that nobody asked for
    (Documentation/networking/statistics.rst). Speeds are compared between interfaces of the same hardware.
    """
    interfaces = [read_interface(system, name) for name in system.names(INTERFACES)]
    if all(interface.loopback for interface in interfaces):
        return skipped("this machine has no network interface but its loopback")
    wrong = list(_choosing_nothing(system, interfaces))
    if wrong:
        there = ", ".join(interface.name for interface in interfaces)
        return bad(f"{'; '.join(wrong)}: here are {there}", "name an interface that every node of the job has")
    used = used_interfaces(system, interfaces)
    if not used:
        return skipped("no interface has the default route, and no variable names one")
    return _judge_network_interfaces(system, interfaces, used)


def _judge_network_interfaces(
    system: System, interfaces: Sequence[Interface], used: Sequence[Interface]
) -> CheckResult:
    folders = {interface.name: f"{INTERFACES}/{interface.name}" for interface in used}
    counters = read_twice(
        system,
        [
            *(f"{folder}/statistics/{name}" for folder in folders.values() for name in (*_INTERFACE_ERRORS, *_DROPS)),
            *(f"{folder}/carrier_changes" for folder in folders.values()),
        ],
    )
    moved = [
        f"{_interface_counter_name(path)} grew by {counter.added} in {INTERVAL_S:g} s"
        for path, counter in counters.items()
        if counter.added and not path.endswith(_DROPS)
    ]
    down = [f"{interface.name} is down or has no carrier" for interface in used if not interface.up]
    details = (
        ("interfaces", ", ".join(f"{one.name} {_interface_speed(one)} mtu {one.mtu}" for one in used)),
        *((f"count {_interface_counter_name(path)}", str(counter.after)) for path, counter in counters.items()),
    )
    trouble = [*down, *_slow_interfaces(interfaces), *moved]
    return judged(
        trouble,
        "`ip -s link show INTERFACE` and `ethtool -S INTERFACE` a minute apart; the operator checks cable and switch port",
        f"{', '.join(one.name for one in used)}: up, no errors in {INTERVAL_S:g} s",
        *details,
    )


def read_interface(system: System, name: str) -> Interface:
    folder = f"{INTERFACES}/{name}"
    flags = int((system.read(f"{folder}/flags") or "0").strip(), 16)
    vendor = system.read(f"{folder}/device/vendor")
    speed = read_number(system, f"{folder}/speed")
    return Interface(
        name=name,
        up=bool(flags & _IS_UP) and read_number(system, f"{folder}/carrier") == 1,
        loopback=bool(flags & _IS_LOOPBACK),
        hardware=f"{vendor.strip()}:{(system.read(f'{folder}/device/device') or '').strip()}" if vendor else None,
        speed=speed if speed and speed > 0 else None,
        mtu=read_number(system, f"{folder}/mtu"),
    )


def _choosing_nothing(system: System, interfaces: Sequence[Interface]) -> Iterator[str]:
    for variable in _IFNAME_VARIABLES:
        setting = system.environ.get(variable, "")
        if setting and not any(is_chosen(setting, interface.name) for interface in interfaces):
            yield f"{variable}={setting} names no interface of this node"


def used_interfaces(system: System, interfaces: Sequence[Interface]) -> list[Interface]:
    settings = [
        setting for variable in _IFNAME_VARIABLES if (setting := system.environ.get(variable)) and setting[0] != "^"
    ]
    if settings:
        return [one for one in interfaces if any(is_chosen(setting, one.name) for setting in settings)]
    default = {*_default_routes(system)}
    return [one for one in interfaces if one.name in default]


def _default_routes(system: System) -> Iterator[str]:
    """Interfaces with a default route. In /proc/net/ipv6_route the loopback has one too, which rejects everything."""
    for line in (system.read("/proc/net/route") or "").splitlines()[1:]:
        if line.split()[1:2] == ["00000000"]:
            yield line.split()[0]
    for line in (system.read("/proc/net/ipv6_route") or "").splitlines():
        fields = line.split()
        if fields[:2] == ["0" * 32, "00"] and fields[-1] != "lo":
            yield fields[-1]


def _slow_interfaces(interfaces: Sequence[Interface]) -> Iterator[str]:
    speeds = [(one.name, one.hardware, one.speed) for one in interfaces if one.up]
    for name, speed, fastest in slower_than_others([(name, kind, mb) for name, kind, mb in speeds if kind and mb]):
        yield f"{name} runs at {speed:g} Mb/s, others of its hardware at {fastest:g}"


def _interface_speed(interface: Interface) -> str:
    return f"{interface.speed} Mb/s" if interface.speed else "speed unknown"


def _interface_counter_name(path: str) -> str:
    parts = path.removeprefix(f"{INTERFACES}/").split("/")
    return f"{parts[0]} {parts[-1]}"


NETWORK_INTERFACES = check("network-interfaces", _look_at_network_interfaces)
