"""The command line: torchrun gets options for one log per rank unless the user chose some; other commands stay as they are."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

_FLAGS = frozenset({"--standalone", "-m", "--module", "--no-python", "--run-path", "--use-env", "-h", "--help"})
"""Options of torchrun that take no value."""
_LOG_OPTIONS = frozenset({"--log-dir", "-r", "--redirects", "-t", "--tee", "--logs-specs"})
_LOG_VARIABLES = ("PET_LOG_DIR", "PET_REDIRECTS", "PET_TEE", "PET_LOGS_SPECS")
"""torchrun reads its options from these, too."""
_MODULES = ("torch.distributed.run", "torch.distributed.launch")


@dataclass(frozen=True, slots=True)
class Launch:
    command: tuple[str, ...]
    is_local: bool
    """Its ranks run on this machine, so what they leave here tells where they ran."""
    log_options_at: int | None = None
    """Where torchrun takes ours; None: it gets none."""

    @property
    def writes_logs(self) -> bool:
        """One per rank, by our options: only what the launcher says itself is still to be copied."""
        return self.log_options_at is not None

    def argv(self, logs: Path) -> tuple[str, ...]:
        if self.log_options_at is None:
            return self.command
        options = ("--log-dir", str(logs), "--tee", "3", *_plug_in(self.command[0]))
        return (*self.command[: self.log_options_at], *options, *self.command[self.log_options_at :])


def plan_launch(command: Sequence[str], environ: Mapping[str, str]) -> Launch:
    begin = _after_torchrun(command)
    if begin is None:
        return Launch(tuple(command), is_local="RANK" in environ)
    chosen = _LOG_OPTIONS.intersection(_own_options(command[begin:])) or any(map(environ.get, _LOG_VARIABLES))
    return Launch(tuple(command), is_local=True, log_options_at=None if chosen else begin)


def _after_torchrun(command: Sequence[str]) -> int | None:
    """Where its options begin; None: it is something else."""
    program = Path(command[0]).name
    if program == "torchrun":
        return 1
    for place, word in enumerate(command[1:-1], 1):
        if not word.startswith("-"):
            return None  # a script, whose own options follow
        if word == "-m":
            is_torchrun = program.startswith("python") and command[place + 1] in _MODULES
            return place + 2 if is_torchrun else None
    return None


def _own_options(words: Sequence[str]) -> Iterator[str]:
    """Options of torchrun itself: what follows the script's name is the script's."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return
        name, is_joined, _ = word.partition("=")
        yield name if not name.startswith("--") else name.replace("_", "-")
        if not is_joined and name.replace("_", "-") not in _FLAGS:
            next(rest, None)


def _plug_in(program: str) -> tuple[str, ...]:
    """Ours names logs by rank, where torchrun itself knows local ranks only. It must be installed where torchrun is."""
    found = shutil.which(program)
    beside_us = found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    installed = entry_points(group="torchrun.logs_specs", name="forkpoint")
    return ("--logs-specs", "forkpoint") if beside_us and installed else ()
