"""Works out from the user's command how to start its ranks."""

import ast
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forkpoint.errors import UsageError
from forkpoint.live.run.start import find_interpreter, split_torchrun

_OWN_LAUNCHERS: Final = frozenset({"spawn", "start_processes", "notebook_launcher", "elastic_launch", "launch"})
"""Functions with which a script starts its ranks itself."""
_FEW: Final = 4


@dataclass(frozen=True, slots=True)
class UserProgram:
    command: tuple[str, ...]
    """As the user gave it."""
    folder: Path
    """Where it is started."""
    ranks: int
    """0: the command decides."""
    interpreter: str = ""
    words: tuple[str, ...] = ()
    """The script, or -m and a module, with arguments: each rank runs the interpreter with them. (): the command starts its
    ranks itself.
    """

    @property
    def starts_itself(self) -> bool:
        return not self.words


def plan_program(
    command: Sequence[str], ranks: int | None, environ: Mapping[str, str], *, as_is: bool = False
) -> UserProgram:
    """We start the ranks of `torchrun` and `python script` ourselves; any other command runs as it is."""
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise UsageError(f"{command[0]}: no such command")
    whole, folder = tuple(command), Path.cwd()
    split = split_torchrun(command)
    interpreter = find_interpreter(command, environ)
    if as_is or interpreter is None or not interpreter.name.startswith("python"):
        return UserProgram(whole, folder, 0)
    if split is not None:
        own = split.value("--nproc-per-node")
        count = ranks or (int(own) if own.isdecimal() else _FEW)
        module = split.has("-m") or split.has("--module")
        if not split.script or split.has("--no-python"):
            return UserProgram(whole, folder, 0)
        return UserProgram(whole, folder, count, str(interpreter), (*(("-m",) if module else ()), *split.script))
    words = tuple(command[1:])
    if not Path(command[0]).name.startswith("python") or not words or words[0] == "-c":
        return UserProgram(whole, folder, 0)
    if words[0] != "-m" and (words[0].startswith("-") or _launches_itself(words[0])):
        return UserProgram(whole, folder, 0)
    return UserProgram(whole, folder, ranks or _FEW, str(interpreter), words)


def _launches_itself(script: str) -> bool:
    try:
        tree = ast.parse(Path(script).read_bytes())
    except OSError as error:
        raise UsageError(f"{script}: cannot be read ({error.strerror})") from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{script}: is not Python ({error})") from error
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called}
    return bool(names & _OWN_LAUNCHERS)


def rank_environ(rank: int, world: int, port: int, run: str) -> dict[str, str]:
    """The environment that torchrun sets on one node."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "ROLE_RANK": str(rank), "GROUP_RANK": "0",
        "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "ROLE_WORLD_SIZE": str(world), "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }  # fmt: skip


def common_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The same for all ranks: the user's own, with a common hash seed, and one thread each, as torchrun sets it."""
    wanted = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    kept = {name: value for name, value in environ.items() if not name.startswith(("TORCHELASTIC_", "FORKPOINT"))}
    return {**wanted, **kept}
