"""Network interfaces: do those exist that the job is told to use, are the used ones up, and do their errors grow?

Used are the interfaces that NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME choose, else the one with the default route. Frames
that are dropped are counted in the details and not judged: the kernel also counts those nobody asked for
(Documentation/networking/statistics.rst). Speeds are compared between interfaces of the same hardware.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.chosen import is_chosen
from forkpoint.doctor.counters import INTERVAL_S, read_number, read_twice
from forkpoint.doctor.odd_speeds import slower_than_others
from forkpoint.doctor.overlay import with_environ, with_files
from forkpoint.doctor.system import System

INTERFACES = "/sys/class/net"
_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "tx_carrier_errors", "rx_missed_errors")
_DROPS = ("rx_dropped", "tx_dropped")
_IS_UP = 0x1
_IS_LOOPBACK = 0x8
_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    up: bool
    """Switched on, and a carrier is seen."""
    loopback: bool
    hardware: str | None
    """Vendor and device number; None for what is not a device: bridges, bonds, containers' ends."""
    speed: int | None
    """Mb/s"""
    mtu: int | None


def look(system: System) -> CheckResult:
    interfaces = [_interface(system, name) for name in system.names(INTERFACES)]
    if all(interface.loopback for interface in interfaces):
        return skipped("this machine has no network interface but its loopback")
    wrong = list(_choosing_nothing(system, interfaces))
    if wrong:
        there = ", ".join(interface.name for interface in interfaces)
        return bad(f"{'; '.join(wrong)}: here are {there}", "name an interface that every node of the job has")
    used = _used(system, interfaces)
    if not used:
        return skipped("no interface has the default route, and no variable names one")
    return _judge(system, interfaces, used)


def _judge(system: System, interfaces: Sequence[Interface], used: Sequence[Interface]) -> CheckResult:
    folders = {interface.name: f"{INTERFACES}/{interface.name}" for interface in used}
    counters = read_twice(
        system,
        [
            *(f"{folder}/statistics/{name}" for folder in folders.values() for name in (*_ERRORS, *_DROPS)),
            *(f"{folder}/carrier_changes" for folder in folders.values()),
        ],
    )
    moved = [
        f"{_named(path)} grew by {counter.added} in {INTERVAL_S:g} s"
        for path, counter in counters.items()
        if counter.added and not path.endswith(_DROPS)
    ]
    down = [f"{interface.name} is down or has no carrier" for interface in used if not interface.up]
    details = (
        ("interfaces", ", ".join(f"{one.name} {_speed(one)} mtu {one.mtu}" for one in used)),
        *((f"count {_named(path)}", str(counter.after)) for path, counter in counters.items()),
    )
    trouble = [*down, *_slow(interfaces), *moved]
    if trouble:
        return bad(
            "; ".join(trouble),
            "`ip -s link show INTERFACE` and `ethtool -S INTERFACE` a minute apart; cable and switch port are the operator's",
            *details,
        )
    return ok(f"{', '.join(one.name for one in used)}: up, no errors in {INTERVAL_S:g} s", *details)


def _interface(system: System, name: str) -> Interface:
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
    for variable in _VARIABLES:
        setting = system.environ.get(variable, "")
        if setting and not any(is_chosen(setting, interface.name) for interface in interfaces):
            yield f"{variable}={setting} names no interface of this node"


def _used(system: System, interfaces: Sequence[Interface]) -> list[Interface]:
    settings = [setting for variable in _VARIABLES if (setting := system.environ.get(variable)) and setting[0] != "^"]
    if settings:
        return [one for one in interfaces if any(is_chosen(setting, one.name) for setting in settings)]
    default = {*_default_routes(system)}
    return [one for one in interfaces if one.name in default]


def _default_routes(system: System) -> Iterator[str]:
    """Interfaces of routes to everywhere. In /proc/net/ipv6_route the loopback has one too, which refuses."""
    for line in (system.read("/proc/net/route") or "").splitlines()[1:]:
        if line.split()[1:2] == ["00000000"]:
            yield line.split()[0]
    for line in (system.read("/proc/net/ipv6_route") or "").splitlines():
        fields = line.split()
        if fields[:2] == ["0" * 32, "00"] and fields[-1] != "lo":
            yield fields[-1]


def _slow(interfaces: Sequence[Interface]) -> Iterator[str]:
    speeds = [(one.name, one.hardware, one.speed) for one in interfaces if one.up]
    for name, speed, fastest in slower_than_others([(name, kind, mb) for name, kind, mb in speeds if kind and mb]):
        yield f"{name} runs at {speed:g} Mb/s, others of its hardware at {fastest:g}"


def _speed(interface: Interface) -> str:
    return f"{interface.speed} Mb/s" if interface.speed else "speed unknown"


def _named(path: str) -> str:
    parts = path.removeprefix(f"{INTERFACES}/").split("/")
    return f"{parts[0]} {parts[-1]}"


def inject(system: System) -> System:
    """A name that no interface has."""
    there = with_files(system, {f"{INTERFACES}/eth0/flags": "0x1003\n"})
    return with_environ(there, {"NCCL_SOCKET_IFNAME": "=not-an-interface"})


CHECK = Check(
    name="network-interfaces",
    title="the interfaces the job uses exist and are sound",
    why="A wrong name makes start-up hang or fail on this node alone; errors and flaps stall sockets and the store.",
    look=look,
    inject=inject,
)
