"""The speed of the network adapter that sockets of this machine use, if its driver reports it."""

from forkpoint.doctor.checks.network import INTERFACES, read_interface, used_interfaces
from forkpoint.doctor.system import System


def adapter_mbps(system: System) -> int | None:
    """The fastest, if there are several."""
    interfaces = [read_interface(system, name) for name in system.names(INTERFACES)]
    return max(
        (one.speed for one in used_interfaces(system, interfaces) if one.speed and not one.loopback), default=None
    )
