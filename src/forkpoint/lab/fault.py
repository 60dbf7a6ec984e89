"""A fault: a patch on a healthy job, signals sent from outside, and the truth about both; and its folder on disk.

The faults themselves are data, in `faults/`: a file per subject, which says its form by example.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from signal import Signals
from types import MappingProxyType
from typing import Any, Final

import msgspec

from forkpoint.errors import UnreadableInput
from forkpoint.lab.ranks import Backend, Signal
from forkpoint.model.verdict import Action, Cause, Symptom

# ---------------------------------------------------------------------------------------------------------------------
# The healthy jobs that the lab breaks: programs as people write them, kept as data and run by path.

_JOBS = Path(__file__).parent / "jobs"


@dataclass(frozen=True, slots=True)
class HealthyJob:
    name: str
    title: str
    layout: str
    world: int
    """Default number of ranks."""

    @property
    def text(self) -> str:
        return (_JOBS / f"{self.name}.py").read_text()


DDP = HealthyJob("ddp", "DistributedDataParallel with evaluation, checkpoints and early stopping", "DP", 4)
FSDP = HealthyJob("fsdp", "FSDP2 with accumulated gradients and samples", "FSDP", 4)
MESH = HealthyJob("mesh", "tensor parallel by data parallel on a DeviceMesh", "TPxDP", 4)
PIPELINE = HealthyJob("pipeline", "a pipeline of stages with send and recv", "PP", 3)
MOE = HealthyJob("moe", "a mixture of experts with all_to_all", "MoE", 4)
LOOP = HealthyJob("loop", "a hand-written loop with groups and a loader thread", "hand-written", 4)

JOBS = (DDP, FSDP, MESH, PIPELINE, MOE, LOOP)


# ---------------------------------------------------------------------------------------------------------------------
# A fault.

HANGS = (Symptom.WATCHDOG_TIMEOUT, Symptom.ERROR, Symptom.SILENT_HANG)
"""The symptoms a hang may have, depending on the backend and on who gives up first."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of the patch. `find` occurs in the job exactly once."""

    find: str
    replace: str
    guilty: bool = True
    """Whether this place is the mistake. False: an import, or data that triggers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Every answer that a careful person could give from the evidence, best first."""

    symptom: tuple[Symptom, ...] = HANGS
    cause: tuple[Cause, ...] = (Cause.DIVERGENT_PATH,)
    suspects: tuple[tuple[int, ...], ...]
    """An empty tuple means that naming nobody is right."""
    action: tuple[Action, ...] = (Action.FIX_CODE,)
    story: str


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    title: str
    job: HealthyJob
    truth: Truth
    edits: tuple[Edit, ...] = ()
    signals: tuple[Signal, ...] = ()
    absent: tuple[int, ...] = ()
    """Ranks that are never started."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ends: bool = False
    """The job runs to its end, so every rank writes its dump there."""
    backends: tuple[Backend, ...] = ("gloo", "nccl")
    truth_on: Mapping[Backend, Truth] = field(default_factory=lambda: MappingProxyType({}))
    """For backends that behave differently or leave other evidence."""

    def truth_for(self, backend: Backend) -> Truth:
        return self.truth_on.get(backend, self.truth)


# ---------------------------------------------------------------------------------------------------------------------
# The faults there are, from `faults/*.toml`.

_FAULTS = Path(__file__).parent / "faults"
_HEALTHY: Final[dict[str, Any]] = {
    "symptom": ["none"],
    "cause": ["healthy"],
    "suspects": [[]],
    "action": ["none"],
    "story": "Nothing is wrong: the job runs to its end.",
    "ends": True,
}


def _read_faults() -> Iterator[Fault]:
    """Healthy ones first: every job unchanged, then those that only look like a fault. The others by job and name."""
    unchanged = [{"name": f"healthy-{job.name}", "title": f"healthy: {job.title}", "job": job.name} for job in JOBS]
    broken: list[Fault] = []
    for path in sorted(_FAULTS.glob("*.toml")):
        tables = tomllib.loads(path.read_text("utf-8"))["fault"]
        if path.stem == "healthy":
            yield from (_fault(table | _HEALTHY) for table in (*unchanged, *tables))
        else:
            broken += map(_fault, tables)
    yield from sorted(broken, key=lambda fault: (JOBS.index(fault.job), fault.name))


def _fault(table: dict[str, Any]) -> Fault:
    others = {backend: msgspec.convert(table | told, Truth) for backend, told in table.get("on", {}).items()}
    return Fault(
        name=table["name"],
        title=table["title"],
        job=next(job for job in JOBS if job.name == table["job"]),
        truth=msgspec.convert(table, Truth),
        edits=tuple(map(_edit, table.get("edit", ()))),
        signals=tuple(Signal(s["rank"], Signals[s["signal"]], s["when"]) for s in table.get("signals", ())),
        absent=tuple(table.get("absent", ())),
        ends=table.get("ends", False),
        backends=tuple(table.get("backends", ("gloo", "nccl"))),
        truth_on=MappingProxyType(others),
    )


def _edit(table: dict[str, Any]) -> Edit:
    """`find` is replaced by `replace`; or `add` comes before or after the lines that are named."""
    if "find" in table:
        found, written = table["find"], table["replace"]
    elif "before" in table:
        found, written = table["before"], table["add"] + table["before"]
    else:
        found, written = table["after"], table["after"] + table["add"]
    return Edit(found, written, table.get("guilty", True))


FAULTS: tuple[Fault, ...] = tuple(_read_faults())


# ---------------------------------------------------------------------------------------------------------------------
# Applies a fault's edits to its job.


@dataclass(frozen=True, slots=True)
class Patched:
    text: str
    guilty: tuple[tuple[int, int], ...]
    """First and last line of each place where the mistake is."""


def patch(fault: Fault) -> Patched:
    """Raises ValueError if an edit's text is not in the job exactly once: job and fault no longer match."""
    job = fault.job.text
    for edit in fault.edits:
        if job.count(edit.find) != 1:
            raise ValueError(f"{fault.name}: found {job.count(edit.find)} times in {fault.job.name}: {edit.find!r}")
    text, rest, guilty = "", job, list[tuple[int, int]]()
    for edit in sorted(fault.edits, key=lambda edit: job.index(edit.find)):
        before, _, rest = rest.partition(edit.find)
        text += before
        first = text.count("\n") + 1
        text += edit.replace
        if edit.guilty:
            guilty.append((first, max(first, first + edit.replace.rstrip("\n").count("\n"))))
    return Patched(text + rest, tuple(guilty))


# ---------------------------------------------------------------------------------------------------------------------
# A recorded run on disk, as the folders in cases/ are: capture/, source/ and case.toml with the truth.


@dataclass(frozen=True, slots=True)
class CaseFolder:
    path: Path
    name: str
    title: str
    truth: Truth

    @property
    def capture(self) -> Path:
        return self.path / "capture"

    @property
    def source(self) -> Path:
        return self.path / "source"


def write_case(folder: Path, fault: Fault, patched: Patched, backend: Backend, world: int) -> None:
    """case.toml: the truth was known before the run."""
    truth = fault.truth_for(backend)
    lines = [
        f"title = {_toml(fault.title)}",
        f"layout = {_toml(fault.job.layout)}",
        f"world = {world}",
        f"backend = {_toml(backend)}",
        "timing = false",
        f"recorded_with = {_toml(_torch_version())}",
        f"fault = {_toml(fault.name)}",
        "",
        "[truth]",
        f"symptom = {_toml(truth.symptom)}",
        f"cause = {_toml(truth.cause)}",
        f"suspects = {_toml(truth.suspects)}",
        f"action = {_toml(truth.action)}",
        f"story = {_toml(truth.story)}",
    ]
    for place in patched.guilty:
        lines += ["", "[[truth.site]]", 'file = "train.py"', f"lines = {_toml(place)}"]
    (folder / "case.toml").write_text("\n".join(lines) + "\n")


def read_case(folder: Path) -> CaseFolder:
    try:
        facts = tomllib.loads((folder / "case.toml").read_text())
        return CaseFolder(folder, folder.name, facts["title"], msgspec.convert(facts["truth"], Truth))
    except (OSError, KeyError, ValueError) as error:
        raise UnreadableInput(
            f"{folder}: not a case of the lab: {error}; `forkpoint lab run --out` writes them"
        ) from error


def _toml(value: object) -> str:
    """Strings, numbers and lists are written alike in JSON and TOML."""
    return json.dumps(value, ensure_ascii=False)


def _torch_version() -> str:
    try:
        return f"torch {version('torch')}"
    except PackageNotFoundError:  # a torch built from source
        return "torch"
