"""What NVML told about the GPUs of this machine, as a value. Read once, for all checks, in a process of its own."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkpoint.doctor.system import RunProgram, Unanswered
from forkpoint.ingest.machine.bus import normal_bus

READ_LIMIT_S = 10.0
"""Longer than for other programs: a driver without persistence wakes every GPU first, which takes seconds."""
INSTALL = "pip install 'forkpoint[doctor]'"

_READER = Path(__file__).with_name("nvml_reader.py")
_IDLE = 0x1


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """Lifetime counters of one NVLink; None where the driver does not count."""

    replay: int | None
    recovery: int | None
    crc: int | None


@dataclass(frozen=True, slots=True)
class NvLink:
    number: int
    active: bool
    before: LinkErrors
    after: LinkErrors
    """The same a second later."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. None: this GPU or this driver does not tell."""

    index: int
    name: str
    bus_id: str | None
    lost: str | None
    """What NVML said when asked for it; then nothing else of it is known."""
    errors: tuple[str, ...]
    """What NVML said in place of single answers, where it was not that they are unsupported."""
    persistence: bool | None
    ecc: bool | None
    uncorrected: int | None
    """Memory errors that ECC could not correct, since the driver was loaded or the GPU reset."""
    uncorrected_ever: int | None
    remap_pending: bool | None
    remap_failed: bool | None
    pages_pending: bool | None
    recovery_action: int | None
    temperature: int | None
    hottest: int | None
    """The highest temperature at which it may run."""
    margin: int | None
    """Degrees left until it slows down, which newer drivers tell in place of a limit."""
    reasons: tuple[int, int] | None
    """Why clocks are low, as NVML's bits, now and a second later."""
    links: tuple[NvLink, ...]

    @property
    def label(self) -> str:
        return f"GPU {self.index} ({self.bus_id})" if self.bus_id else f"GPU {self.index}"

    @property
    def idle(self) -> bool:
        """Its clocks are low because it has nothing to do, in either read."""
        return self.reasons is not None and bool((self.reasons[0] | self.reasons[1]) & _IDLE)


@dataclass(frozen=True, slots=True)
class Nvml:
    driver: str
    gpus: tuple[Gpu, ...]

    @property
    def readable(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.lost is None)


@dataclass(frozen=True, slots=True)
class DriverStuck(Unanswered):
    """The driver is there and does not answer, or answers with a failure: that itself is bad."""


def read_nvml(run: RunProgram) -> Nvml | Unanswered:
    """`-P`: the modules beside the reader must not be imported in place of libraries of the same name."""
    ran = run((sys.executable, "-P", str(_READER)), READ_LIMIT_S)
    if isinstance(ran, Unanswered):
        return DriverStuck(f"NVML gave no answer: {ran.why}", "nvidia-smi -L")
    try:
        return parse_nvml(json.loads(ran.stdout))
    except ValueError:
        return DriverStuck(f"reading NVML ended with status {ran.returncode} and no answer", "nvidia-smi -L")


def parse_nvml(document: Mapping[str, Any]) -> Nvml | Unanswered:
    if document.get("missing") == "driver":
        return Unanswered("no NVIDIA driver is loaded here, or it was not given to this container")
    if "missing" in document:
        return Unanswered(f"{document['missing']} is not installed", INSTALL)
    if "failed" in document:
        return DriverStuck(f"NVML could not be started: {document['failed']}", "nvidia-smi -L")
    return Nvml(str(document["driver"]), tuple(_gpu(row) for row in document["gpus"]))


def _gpu(row: Mapping[str, Any]) -> Gpu:
    later: Mapping[str, Any] = row.get("later", {})
    reasons = (row.get("reasons"), later.get("reasons"))
    return Gpu(
        index=row["index"],
        name=row.get("name") or "GPU",
        bus_id=normal_bus(row["bus_id"]) if row.get("bus_id") else None,
        lost=row.get("lost"),
        errors=tuple(row.get("errors", ())),
        persistence=_flag(row.get("persistence")),
        ecc=_flag(row.get("ecc")),
        uncorrected=row.get("uncorrected"),
        uncorrected_ever=row.get("uncorrected_ever"),
        remap_pending=_flag(row.get("remap_pending")),
        remap_failed=_flag(row.get("remap_failed")),
        pages_pending=_flag(row.get("pages_pending")),
        recovery_action=row.get("recovery_action"),
        temperature=row.get("temperature"),
        hottest=row.get("hottest"),
        margin=row.get("margin"),
        reasons=None if reasons[0] is None or reasons[1] is None else (reasons[0], reasons[1]),
        links=_links(row.get("links", ()), later.get("links", ())),
    )


def _links(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> tuple[NvLink, ...]:
    """A link that is gone a second later is not active."""
    later = [*after, *({} for _ in before[len(after) :])]
    return tuple(
        NvLink(number, bool(first.get("active") and second.get("active")), _errors(first), _errors(second))
        for number, (first, second) in enumerate(zip(before, later, strict=False))
    )


def _errors(row: Mapping[str, Any]) -> LinkErrors:
    return LinkErrors(row.get("replay"), row.get("recovery"), row.get("crc"))


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
