"""Is the clock kept?

Logs and dumps of several nodes are ordered by their clocks. A node that is seconds off puts events in an order that never
was. The kernel alone cannot say: under a hypervisor or PTP a good clock is reported as not synchronised.
"""

import re
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_outputs
from forkpoint.doctor.system import KernelClock, NoAnswer, Ran, System

_OFFSET = re.compile(r"^System time\s*:\s*(?P<offset>[\d.]+) seconds (?P<way>fast|slow)", re.MULTILINE)
_LEAP = re.compile(r"^Leap status\s*:\s*(?P<status>.+)$", re.MULTILINE)
_SYNCHRONISED = re.compile(r"^\s*System clock synchronized: (?P<yes>yes|no)", re.MULTILINE)
_SERVICE = re.compile(r"^\s*NTP service: (?P<state>\S+)", re.MULTILINE)
_TOO_FAR_S = 0.5
"""Lines of different ranks in one incident lie closer together than that."""
_START = "start chronyd (or another time service), then look again: chronyc tracking"


def look(system: System) -> CheckResult:
    """The time service knows best, then systemd, then the kernel."""
    told = system.run(("chronyc", "-n", "tracking"))
    if isinstance(told, Ran) and (result := _chrony(told.stdout)):
        return result
    told = system.run(("timedatectl",))
    if isinstance(told, Ran) and (result := _timedatectl(told.stdout)):
        return result
    clock = system.clock()
    if isinstance(clock, NoAnswer):
        return skipped(f"nothing here tells about the clock: {clock.why}")
    if clock.synchronised:
        return ok(f"the kernel's clock is kept, within {clock.max_error_s:.3g} s", ("synchronised", "yes"))
    return skipped(
        "the kernel reports no synchronisation, which may be a hypervisor's or PTP's doing; no time service answers here",
        "compare `date +%s.%N` with other nodes, or run `chronyc tracking` on the host",
    )


def _chrony(text: str) -> CheckResult | None:
    offset, leap = _OFFSET.search(text), _LEAP.search(text)
    if offset is None or leap is None:
        return None
    far = float(offset["offset"])
    if leap["status"].strip() == "Not synchronised":
        return bad("chronyd runs and has no source to follow", "chronyc sources -v", ("synchronised", "no"))
    if far > _TOO_FAR_S:
        return bad(f"{far:.3g} s {offset['way']} of its source", "chronyc sourcestats -v", ("synchronised", "no"))
    return ok(f"{far:.2g} s {offset['way']} of its source, by chronyd", ("synchronised", "yes"))


def _timedatectl(text: str) -> CheckResult | None:
    """Its yes is the kernel's, which is worth something; its no only where it also says that nothing keeps the time."""
    yes, service = _SYNCHRONISED.search(text), _SERVICE.search(text)
    if yes is None:
        return None
    if yes["yes"] == "yes":
        return ok("synchronised, by timedatectl", ("synchronised", "yes"))
    if service and service["state"] == "inactive":
        return bad("not synchronised, and no time service is active", _START, ("synchronised", "no"))
    return None


def inject(system: System) -> System:
    adrift = Ran(0, "System time     : 4.207316875 seconds slow of NTP time\nLeap status     : Normal\n")
    unkept = replace(system, clock=lambda: KernelClock(synchronised=False, max_error_s=16.0))
    return with_outputs(unkept, {"chronyc": adrift})


CHECK = Check(
    name="clock",
    title="clock synchronised",
    why="Evidence of several nodes is put in order by their clocks; one that is off makes a victim look like the first.",
    look=look,
    inject=inject,
)
