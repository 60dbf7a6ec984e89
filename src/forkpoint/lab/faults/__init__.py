"""Every fault of the lab, in files by subject; `FAULTS` has them by job and name, healthy ones first."""

from forkpoint.lab.fault import JOBS, Fault
from forkpoint.lab.faults.branches import BRANCHES
from forkpoint.lab.faults.healthy import HEALTHY
from forkpoint.lab.faults.loops import LOOPS
from forkpoint.lab.faults.lost_ranks import LOST_RANKS
from forkpoint.lab.faults.orders import ORDERS
from forkpoint.lab.faults.sizes_and_values import SIZES_AND_VALUES
from forkpoint.lab.faults.stalls import STALLS

_BROKEN = (*BRANCHES, *LOOPS, *LOST_RANKS, *ORDERS, *SIZES_AND_VALUES, *STALLS)
FAULTS: tuple[Fault, ...] = (*HEALTHY, *sorted(_BROKEN, key=lambda fault: (JOBS.index(fault.job), fault.name)))
