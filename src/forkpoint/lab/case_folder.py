"""A recorded run on disk, as the folders in cases/ are: capture/, source/ and case.toml with the truth."""

import json
import tomllib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from forkpoint.errors import UnreadableInput
from forkpoint.lab.fault import Fault, Truth
from forkpoint.lab.patch import Patched
from forkpoint.lab.plan import Backend
from forkpoint.model.verdict import Action, Cause, Symptom


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
        truth = facts["truth"]
        return CaseFolder(
            path=folder,
            name=folder.name,
            title=facts["title"],
            truth=Truth(
                symptom=tuple(map(Symptom, truth["symptom"])),
                cause=tuple(map(Cause, truth["cause"])),
                suspects=tuple(tuple(answer) for answer in truth["suspects"]),
                action=tuple(map(Action, truth["action"])),
                story=truth["story"],
            ),
        )
    except (OSError, KeyError, ValueError) as error:
        raise UnreadableInput(
            f"{folder}: no case of the lab: {error}; `forkpoint lab run --out` writes them"
        ) from error


def _toml(value: object) -> str:
    """Strings, numbers and lists are written alike in JSON and TOML."""
    return json.dumps(value, ensure_ascii=False)


def _torch_version() -> str:
    try:
        return f"torch {version('torch')}"
    except PackageNotFoundError:  # a torch that was built in place
        return "torch"
