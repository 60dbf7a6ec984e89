"""Reads every GPU through NVML and writes the result as JSON. Run as a separate program, by path.

Why a program: a call into a broken driver can block forever, and a thread that is blocked there cannot be killed. It
imports nothing of forkpoint, so that it starts fast. Counters are read twice, `INTERVAL_S` apart.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

INTERVAL_S = 1.0
_LINKS_AT_MOST = 36
"""NVML's own maximum."""
_FIELDS = {"recovery_action": 230, "replay": 161, "recovery": 162, "crc": 163}
"""Fields of newer drivers, by number: older nvidia-ml-py has no name for them. The last three are per link."""

Row = dict[str, Any]


class NvmlReader:
    """NVML's calls on one GPU. Unanswered queries give None; errors that show a broken GPU are kept."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.errors: list[str] = []

    def ask(self, name: str, *args: object) -> Any:
        function: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            answer = function(self._handle, *args)
        except self._nvml.NVMLError as error:
            self._note(error)
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer

    def _note(self, error: Any) -> None:
        """Most errors only say that this GPU does not support the query."""
        broken = (
            self._nvml.NVML_ERROR_GPU_IS_LOST,
            self._nvml.NVML_ERROR_RESET_REQUIRED,
            self._nvml.NVML_ERROR_CORRUPTED_INFOROM,
        )
        if error.value in broken:
            self.errors.append(str(error))

    def field(self, name: str, scope: int = 0) -> int | None:
        found = self.ask("nvmlDeviceGetFieldValues", [(_FIELDS[name], scope)])
        # All these fields are unsigned numbers, and the union is zeroed before it is filled.
        return None if found is None or found[0].nvmlReturn else int(found[0].value.ullVal)


def read_all(nvml: ModuleType) -> Row:
    driver = nvml.nvmlSystemGetDriverVersion()
    gpus: list[Row] = []
    readers: list[NvmlReader | None] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            reader = NvmlReader(nvml, index)
        except nvml.NVMLError as error:
            # A scheduler can deny access to other jobs' GPUs: those are not judged.
            if error.value != nvml.NVML_ERROR_NO_PERMISSION:
                readers.append(None)
                gpus.append({"index": index, "lost": str(error)})
            continue
        readers.append(reader)
        gpus.append({"index": index, **_standing(nvml, reader), **_moving(reader)})
    time.sleep(INTERVAL_S if any(readers) else 0)
    for gpu, reader in zip(gpus, readers, strict=True):
        if reader:
            gpu["later"] = _moving(reader)
            gpu["errors"] = list(dict.fromkeys(reader.errors))
    return {"driver": driver.decode() if isinstance(driver, bytes) else driver, "gpus": gpus}


def _standing(nvml: ModuleType, reader: NvmlReader) -> Row:
    """What does not change within a second."""
    pci = reader.ask("nvmlDeviceGetPciInfo")
    bus = pci.busId if pci else None
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    rows = reader.ask("nvmlDeviceGetRemappedRows")
    rates = reader.ask("nvmlDeviceGetUtilizationRates")
    processes = reader.ask("nvmlDeviceGetComputeRunningProcesses")
    return {
        "name": reader.ask("nvmlDeviceGetName"),
        "bus_id": bus.decode() if isinstance(bus, bytes) else bus,
        "persistence": reader.ask("nvmlDeviceGetPersistenceMode"),
        "ecc": _current(reader.ask("nvmlDeviceGetEccMode")),
        "uncorrected": reader.ask("nvmlDeviceGetTotalEccErrors", uncorrected, nvml.NVML_VOLATILE_ECC),
        "uncorrected_ever": reader.ask("nvmlDeviceGetTotalEccErrors", uncorrected, nvml.NVML_AGGREGATE_ECC),
        "remap_pending": rows[2] if rows else None,
        "remap_failed": rows[3] if rows else None,
        "pages_pending": reader.ask("nvmlDeviceGetRetiredPagesPendingStatus"),
        "recovery_action": reader.field("recovery_action"),
        "temperature": reader.ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "hottest": reader.ask("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX),
        "busy": rates.gpu if rates else None,
        "pids": [process.pid for process in processes or ()],
        "margin": reader.ask("nvmlDeviceGetMarginTemperature"),
    }


def _current(modes: Any) -> int | None:
    """NVML gives the current mode and the one after the next reboot."""
    return modes[0] if modes else None


def _moving(reader: NvmlReader) -> Row:
    """What is read twice: why clocks are low, and the errors of each NVLink."""
    reasons = reader.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        reasons = reader.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    links: list[Row] = []
    for number in range(_LINKS_AT_MOST):
        state = reader.ask("nvmlDeviceGetNvLinkState", number)
        if state is None:
            break
        links.append({"active": state, **(_link_errors(reader, number) if state else {})})
    return {"reasons": reasons, "links": links}


def _link_errors(reader: NvmlReader, number: int) -> Row:
    """With NVML's older call, which takes a link number; with fields if the driver has only those."""
    flits = reader.ask("nvmlDeviceGetNvLinkErrorCounter", number, 2)
    if flits is None:
        return {name: reader.field(name, number) for name in ("replay", "recovery", "crc")}
    data = reader.ask("nvmlDeviceGetNvLinkErrorCounter", number, 3) or 0
    return {
        "replay": reader.ask("nvmlDeviceGetNvLinkErrorCounter", number, 0),
        "recovery": reader.ask("nvmlDeviceGetNvLinkErrorCounter", number, 1),
        "crc": flits + data,
    }


def answer() -> Row:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return {"missing": "nvidia-ml-py"}
    try:
        nvml.nvmlInit()
        return read_all(nvml)
    except nvml.NVMLError as error:
        no_driver = error.value in {nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED}
        return {"missing" if no_driver else "failed": "driver" if no_driver else str(error)}


if __name__ == "__main__":
    json.dump(answer(), sys.stdout)
