"""Every fault of the lab, in files by subject; `FAULTS` has them by job and name, healthy ones first."""

from forkpoint.lab.fault import JOBS, Fault
from forkpoint.lab.faults.branches import BRANCHES
from forkpoint.lab.faults.calls import CALLS
from forkpoint.lab.faults.healthy import HEALTHY
from forkpoint.lab.faults.loops import LOOPS
from forkpoint.lab.faults.lost_ranks import LOST_RANKS
from forkpoint.lab.faults.stalls import STALLS

_BROKEN = (*BRANCHES, *CALLS, *LOOPS, *LOST_RANKS, *STALLS)
FAULTS: tuple[Fault, ...] = (*HEALTHY, *sorted(_BROKEN, key=lambda fault: (JOBS.index(fault.job), fault.name)))
