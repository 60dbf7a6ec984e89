"""Which torch a command will run with: read beside its interpreter, neither imported nor asked for."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from forkpoint.launch_env.release import Release, parse_release

_SHEBANG = re.compile(rb"#!\s*(\S+)")
_VERSION = re.compile(r"""^__version__ = ['"]([^'"]+)""", re.MULTILINE)


def find_torch(command: Sequence[str], environ: Mapping[str, str]) -> Release | None:
    """None: its program is no Python, or torch is not where Python usually has it."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    interpreter = Path(program) if Path(program).name.startswith("python") else _shebang(Path(program))
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
