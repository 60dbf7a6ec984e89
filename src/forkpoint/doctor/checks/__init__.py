"""Every check, in files by subject; `CHECKS` lists them in the order of the report."""

from forkpoint.doctor.checks import control_groups, gpu, host, job, kernel, links, network, recorder, settings
from forkpoint.doctor.report import DoctorCheck

CHECKS_OF_JOB: tuple[DoctorCheck, ...] = (
    recorder.RECORDER_ON,
    recorder.RECORDER_BUFFER,
    recorder.RECORDER_DUMP,
    recorder.RECORDER_PATH,
    recorder.RECORDER_PATH_UNIQUE,
    recorder.RECORDER_PATH_SURVIVES,
    recorder.RECORDER_TIMING,
    settings.ASYNC_ERROR_HANDLING,
    settings.TIMEOUTS,
    settings.VARIABLE_VALUES,
    settings.UNKNOWN_VARIABLES,
    job.MASTER_ADDRESS,
    job.RANKS_ALIVE,
    job.ORPHANS,
    host.VERSIONS,
    host.CLOCK,
)
"""The recorder, the variables, the job and its software."""

CHECKS_OF_MACHINE: tuple[DoctorCheck, ...] = (
    gpu.GPU_PRESENT,
    gpu.GPU_RECOVERY,
    kernel.XIDS,
    gpu.GPU_ECC,
    gpu.GPU_MEMORY_ROWS,
    links.GPU_NVLINK,
    gpu.GPU_SLOWDOWN,
    gpu.GPU_TEMPERATURE,
    gpu.GPU_PERSISTENCE,
    links.PCIE_ERRORS,
    links.PCIE_LINK,
    network.INFINIBAND,
    kernel.ADAPTER_MESSAGES,
    network.NETWORK_INTERFACES,
    host.SHARED_MEMORY,
    host.LIMITS,
    control_groups.CGROUP_MEMORY,
    control_groups.CGROUP_CPU,
    control_groups.CGROUP_PIDS,
    kernel.OOM_KILLS,
    kernel.KERNEL_STALLS,
    kernel.MACHINE_CHECKS,
    recorder.DUMP_SPACE,
)
"""Hardware and host."""

CHECKS = (*CHECKS_OF_JOB, *CHECKS_OF_MACHINE)
