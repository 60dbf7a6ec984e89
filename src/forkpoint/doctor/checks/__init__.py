"""Every check, in files by subject; `CHECKS` lists them in the order of the report."""

from forkpoint.doctor.checks.control_groups import CGROUP_CPU, CGROUP_MEMORY, CGROUP_PIDS
from forkpoint.doctor.checks.gpu import (
    GPU_ECC,
    GPU_MEMORY_ROWS,
    GPU_PERSISTENCE,
    GPU_PRESENT,
    GPU_RECOVERY,
    GPU_SLOWDOWN,
    GPU_TEMPERATURE,
)
from forkpoint.doctor.checks.job import MASTER_ADDRESS, ORPHANS, RANKS_ALIVE
from forkpoint.doctor.checks.kernel import ADAPTER_MESSAGES, KERNEL_STALLS, MACHINE_CHECKS, OOM_KILLS, XIDS
from forkpoint.doctor.checks.limits import LIMITS, SHARED_MEMORY
from forkpoint.doctor.checks.links import GPU_NVLINK, PCIE_ERRORS, PCIE_LINK
from forkpoint.doctor.checks.network import INFINIBAND, NETWORK_INTERFACES
from forkpoint.doctor.checks.recorder import (
    DUMP_SPACE,
    RECORDER_BUFFER,
    RECORDER_DUMP,
    RECORDER_ON,
    RECORDER_PATH,
    RECORDER_PATH_SURVIVES,
    RECORDER_PATH_UNIQUE,
    RECORDER_TIMING,
)
from forkpoint.doctor.checks.settings import ASYNC_ERROR_HANDLING, TIMEOUTS, UNKNOWN_VARIABLES, VARIABLE_VALUES
from forkpoint.doctor.checks.software import CLOCK, VERSIONS
from forkpoint.doctor.report import DoctorCheck

CHECKS_OF_JOB: tuple[DoctorCheck, ...] = (
    RECORDER_ON,
    RECORDER_BUFFER,
    RECORDER_DUMP,
    RECORDER_PATH,
    RECORDER_PATH_UNIQUE,
    RECORDER_PATH_SURVIVES,
    RECORDER_TIMING,
    ASYNC_ERROR_HANDLING,
    TIMEOUTS,
    VARIABLE_VALUES,
    UNKNOWN_VARIABLES,
    MASTER_ADDRESS,
    RANKS_ALIVE,
    ORPHANS,
    VERSIONS,
    CLOCK,
)
"""The recorder, the variables, the job and its software."""

CHECKS_OF_MACHINE: tuple[DoctorCheck, ...] = (
    GPU_PRESENT,
    GPU_RECOVERY,
    XIDS,
    GPU_ECC,
    GPU_MEMORY_ROWS,
    GPU_NVLINK,
    GPU_SLOWDOWN,
    GPU_TEMPERATURE,
    GPU_PERSISTENCE,
    PCIE_ERRORS,
    PCIE_LINK,
    INFINIBAND,
    ADAPTER_MESSAGES,
    NETWORK_INTERFACES,
    SHARED_MEMORY,
    LIMITS,
    CGROUP_MEMORY,
    CGROUP_CPU,
    CGROUP_PIDS,
    OOM_KILLS,
    KERNEL_STALLS,
    MACHINE_CHECKS,
    DUMP_SPACE,
)
"""Hardware and host."""

CHECKS = (*CHECKS_OF_JOB, *CHECKS_OF_MACHINE)
