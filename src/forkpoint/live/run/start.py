"""How a job is started: the folders of an attempt, torchrun's log options, and the variables that switch recording on.

    FOLDER/NAME/attempt_N/NODE/    dumps, logs and what the launcher printed on that node

Nodes of one job that share FOLDER and NAME are diagnosed together. What the user has set stays as it is.
"""

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.knowledge.recorder import (
    BUFFER,
    DUMP,
    DYNAMIC,
    ENTRIES,
    NEW_DUMP,
    OLD_BUFFER,
    OLD_PREFIX,
    PREFIX,
    Release,
    buffer_names,
    parse_release,
    prefix_names,
)

# ---------------------------------------------------------------------------------------------------------------------
# Where the evidence of one attempt goes: never into the folder of another run.

DUMP_PREFIX = "nccl_trace_rank_"

_MAX_TRIES = 1000


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt on one node."""

    attempt: Path
    """The folder of all nodes, which is diagnosed."""
    node: Path

    @property
    def dumps(self) -> Path:
        return self.node / "dumps"

    @property
    def logs(self) -> Path:
        return self.node / "logs"

    @property
    def guard(self) -> Path:
        return self.node / "guard"


def run_name(environ: Mapping[str, str]) -> str:
    """The scheduler's job id, which is the same on all nodes; otherwise one of our own."""
    job = environ.get("SLURM_JOB_ID")
    if job:
        again = environ.get("SLURM_RESTART_COUNT", "0")
        return f"slurm-{job}" if again == "0" else f"slurm-{job}-restart-{again}"
    return time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}")


def node_name(environ: Mapping[str, str]) -> str:
    """The scheduler's name for it, so that it can be excluded by that name. In a pod: NODE_NAME."""
    return environ.get("SLURMD_NODENAME") or environ.get("NODE_NAME") or socket.gethostname()


def make_attempt_folder(folder: Path, name: str, number: int, node: str) -> AttemptFolder:
    """A second run of the same name gets a number appended."""
    for again in range(1, _MAX_TRIES):
        attempt = folder / (name if again == 1 else f"{name}-{again}") / f"attempt_{number}"
        place = AttemptFolder(attempt.absolute(), attempt.absolute() / node)
        try:
            place.node.mkdir(parents=True)
            place.dumps.mkdir()
            place.logs.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"--folder {folder}: {error.strerror}; name a folder that can be written to") from error
        return place
    raise UsageError(f"--folder {folder}: already has {_MAX_TRIES} runs called {name}; give another --name")


def remove_attempt_folder(place: AttemptFolder) -> bool:
    """After a success. False: there is a dump or a guard's alarm, so everything stays."""
    if any(place.dumps.iterdir()) or place.guard.exists():
        return False
    shutil.rmtree(place.node, ignore_errors=True)
    for above in (place.attempt, place.attempt.parent, place.attempt.parent.parent):
        try:
            above.rmdir()
        except OSError:  # not empty
            break
    return True


# ---------------------------------------------------------------------------------------------------------------------
# The command line: torchrun gets options for one log per rank unless the user chose some; other commands stay as they
# are.

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
    """Its ranks run on this machine, so the files they write here belong to this node."""
    log_options_at: int | None = None
    """Where our log options are inserted; None: not at all."""

    @property
    def writes_logs(self) -> bool:
        """Torchrun writes one log per rank, so only the launcher's own output still has to be copied."""
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
    """Index of torchrun's first option; None: not torchrun."""
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


@dataclass(frozen=True, slots=True)
class TorchrunCommand:
    options: tuple[str, ...]
    script: tuple[str, ...]
    """The script or module, and its own arguments."""

    def has(self, name: str) -> bool:
        return name in _own_options(self.options)

    def value(self, name: str) -> str:
        """The value of an option; "" if it is not given."""
        given = [word.partition("=")[0].replace("_", "-") for word in self.options]
        for place, word in enumerate(self.options):
            if given[place] == name:
                return word.partition("=")[2] or "".join(self.options[place + 1 : place + 2])
        return ""


def split_torchrun(command: Sequence[str]) -> TorchrunCommand | None:
    """None: not torchrun."""
    begin = _after_torchrun(command)
    if begin is None:
        return None
    words = tuple(command[begin:])
    at = 0
    while at < len(words) and words[at].startswith("-"):
        takes_value = "=" not in words[at] and words[at].replace("_", "-") not in _FLAGS
        at += 2 if takes_value else 1
    return TorchrunCommand(words[:at], words[at:])


def _plug_in(program: str) -> tuple[str, ...]:
    """Our plug-in names logs by global rank; torchrun uses local ranks. It must be installed beside torchrun."""
    found = shutil.which(program)
    beside_us = found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    installed = entry_points(group="torchrun.logs_specs", name="forkpoint")
    return ("--logs-specs", "forkpoint") if beside_us and installed else ()


# ---------------------------------------------------------------------------------------------------------------------
# Which torch a command will run with: read from files beside its interpreter, without importing torch.

_SHEBANG = re.compile(rb"#!\s*(\S+)")
_VERSION = re.compile(r"""^__version__ = ['"]([^'"]+)""", re.MULTILINE)


def find_interpreter(command: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """None: the program is not Python."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    return Path(program) if Path(program).name.startswith("python") else _shebang(Path(program))


def find_torch(command: Sequence[str], environ: Mapping[str, str]) -> Release | None:
    """None: the program is not Python, or torch is not in the usual place."""
    interpreter = find_interpreter(command, environ)
    if interpreter is None:
        return None
    for file in sorted(interpreter.parent.parent.glob("lib/python3*/*-packages/torch/version.py")):
        version = _VERSION.search(file.read_text(errors="replace"))
        if version:
            return parse_release(version[1])
    return None


def _shebang(program: Path) -> Path | None:
    try:
        with program.open("rb") as file:
            found = _SHEBANG.match(file.readline(4096))
    except OSError:
        return None
    return Path(found[1].decode(errors="replace")) if found else None


# ---------------------------------------------------------------------------------------------------------------------
# The variables that make a job leave evidence. What its user set stays as it is.


def recording(dump_prefix: str, environ: Mapping[str, str], release: Release | None) -> dict[str, str]:
    """Uses the variable names that this torch release reads. If the release is unknown, sets old and new names; newer
    releases then warn about the old one. Sets nothing that the user has set under either name.
    """
    wanted = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    if not any(map(environ.get, (DUMP, NEW_DUMP))):
        wanted[DUMP] = "1"
    if not any(map(environ.get, (BUFFER, OLD_BUFFER))):
        names = buffer_names(release)[:1] if release else (BUFFER, OLD_BUFFER)
        wanted |= dict.fromkeys(names, str(ENTRIES))
    if not any(map(environ.get, (PREFIX, OLD_PREFIX, DYNAMIC))):
        names = prefix_names(release)[:1] if release else (PREFIX, OLD_PREFIX)
        wanted |= dict.fromkeys(names, dump_prefix)
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def naming(environ: Mapping[str, str]) -> dict[str, str]:
    """Makes torchrun prefix each line that it passes on with the global rank."""
    name = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
    return {} if environ.get(name) else {name: "[rank${rank}]:"}


def guarding(place: AttemptFolder, environ: Mapping[str, str], stall_s: float, source: str | None) -> dict[str, str]:
    """The guard writes all ranks' dumps and stacks when nothing has moved for `stall_s`."""
    wanted = {
        "FORKPOINT": "dump",
        "FORKPOINT_STALL_S": f"{stall_s:g}",
        "FORKPOINT_DIR": str(place.guard),
        "FORKPOINT_SOURCE": source or "",
    }
    return {name: value for name, value in wanted.items() if value and not environ.get(name)}


def fetch_dumps(place: AttemptFolder, environ: Mapping[str, str], since: float) -> None:
    """Copies dumps of this attempt that the user's own setting sent elsewhere."""
    prefix = environ.get(PREFIX) or environ.get(OLD_PREFIX)
    if prefix is None or not Path(prefix).parent.is_dir():
        return
    for path in sorted(Path(prefix).parent.iterdir()):
        if path.name.startswith(Path(prefix).name) and path.is_file() and path.stat().st_mtime >= since:
            shutil.copy2(path, place.dumps / path.name)
