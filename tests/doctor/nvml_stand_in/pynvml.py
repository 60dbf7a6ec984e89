# ruff: noqa: N802 - names of the library it stands in for
"""Stands in for nvidia-ml-py where there is no GPU: its names and errors, and a machine whose three GPUs are one that
works and whose link counts errors, one that is lost and one that belongs to another job.
"""

from types import SimpleNamespace

NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_CORRUPTED_INFOROM = 14
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
NVML_AGGREGATE_ECC = 1
NVML_TEMPERATURE_GPU = 0
NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3

_LINKS = 2
_reads = {"replay": 0}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__({4: "Insufficient Permissions", 15: "GPU is lost"}.get(value, "Not Supported"))
        self.value = value


def nvmlInit() -> None: ...


def nvmlSystemGetDriverVersion() -> str:
    return "570.86.15"


def nvmlDeviceGetCount() -> int:
    return 3


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    if index:
        raise NVMLError(NVML_ERROR_GPU_IS_LOST if index == 1 else NVML_ERROR_NO_PERMISSION)
    return index


def nvmlDeviceGetName(_handle: int) -> bytes:
    return b"NVIDIA H100 80GB HBM3"


def nvmlDeviceGetPciInfo(_handle: int) -> SimpleNamespace:
    return SimpleNamespace(busId="00000000:18:00.0")


def nvmlDeviceGetPersistenceMode(_handle: int) -> int:
    return 1


def nvmlDeviceGetEccMode(_handle: int) -> list[int]:
    return [1, 1]


def nvmlDeviceGetTotalEccErrors(_handle: int, _kind: int, counter: int) -> int:
    return 7 if counter == NVML_AGGREGATE_ECC else 0


def nvmlDeviceGetRemappedRows(_handle: int) -> tuple[int, int, int, int]:
    return (2, 0, 1, 0)


def nvmlDeviceGetRetiredPagesPendingStatus(_handle: int) -> int:
    raise NVMLError(NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetTemperature(_handle: int, _sensor: int) -> int:
    return 31


def nvmlDeviceGetTemperatureThreshold(_handle: int, _threshold: int) -> int:
    raise NVMLError(NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetCurrentClocksEventReasons(_handle: int) -> int:
    return 1


def nvmlDeviceGetNvLinkState(_handle: int, link: int) -> int:
    if link >= _LINKS:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return 1


def nvmlDeviceGetNvLinkErrorCounter(_handle: int, link: int, counter: int) -> int:
    if link:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    if counter == 0:
        _reads["replay"] += 1
    return _reads["replay"] if counter == 0 else counter


def nvmlDeviceGetFieldValues(_handle: int, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
    """The recovery step, and the errors of link 1, which the older call does not know."""
    values = {(230, 0): 4, (161, 1): 0, (162, 1): 0, (163, 1): 90}
    return [
        SimpleNamespace(nvmlReturn=0 if field in values else 3, value=SimpleNamespace(ullVal=values.get(field, 0)))
        for field in fields
    ]
