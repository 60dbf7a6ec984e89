"""Every check, in the order of the report. One file each, with its documentation inside."""

from forkpoint.doctor.check import Check
from forkpoint.doctor.checks import (
    async_error_handling,
    clock,
    master_address,
    orphans,
    ranks_alive,
    recorder_buffer,
    recorder_dump,
    recorder_on,
    recorder_path,
    recorder_path_survives,
    recorder_path_unique,
    recorder_timing,
    timeouts,
    unknown_variables,
    variable_values,
    versions,
)
from forkpoint.doctor.checks.machine import MACHINE_CHECKS

CHECKS: tuple[Check, ...] = (
    recorder_on.CHECK,
    recorder_buffer.CHECK,
    recorder_dump.CHECK,
    recorder_path.CHECK,
    recorder_path_unique.CHECK,
    recorder_path_survives.CHECK,
    recorder_timing.CHECK,
    async_error_handling.CHECK,
    timeouts.CHECK,
    variable_values.CHECK,
    unknown_variables.CHECK,
    master_address.CHECK,
    ranks_alive.CHECK,
    orphans.CHECK,
    versions.CHECK,
    clock.CHECK,
    *MACHINE_CHECKS,
)
