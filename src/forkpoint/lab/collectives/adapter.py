"""How fast the network adapter is that sockets of this machine use, where its driver tells."""

from forkpoint.doctor.checks.network import INTERFACES, read_interface, used_interfaces
from forkpoint.doctor.system import System


def adapter_mbps(system: System) -> int | None:
    """Of several the fastest: a job that may use them all is not slow for having one."""
    interfaces = [read_interface(system, name) for name in system.names(INTERFACES)]
    return max(
        (one.speed for one in used_interfaces(system, interfaces) if one.speed and not one.loopback), default=None
    )
