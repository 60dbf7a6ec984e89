"""`forkpoint run` as people start it, and a look at what it leaves: files and processes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "TEST_MARK"


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str
    folder: Path
    mark: str

    @property
    def outcome(self) -> dict[str, Any]:
        return json.loads((self.folder / "outcome.json").read_text())

    @property
    def verdict(self) -> dict[str, Any]:
        return self.outcome["attempts"][-1]["verdict"]

    def evidence(self) -> list[Path]:
        """What jobs left in all attempts: not how they ended, which is written by ourselves; empty files left out."""
        files = (path for path in (self.folder / "runs").rglob("*") if path.name != "ranks.json")
        return [path for path in files if path.is_file() and path.stat().st_size]

    def survivors(self) -> list[str]:
        return living(self.mark)


@dataclass(frozen=True)
class Wrapped:
    process: subprocess.Popen[str]
    folder: Path
    mark: str

    def wait_for_line(self, wanted: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if wanted in line:
                return
        raise AssertionError(f"it ended without saying {wanted}: {self.finish().stderr}")

    def survivors(self) -> list[str]:
        return living(self.mark)

    def finish(self) -> Done:
        out, err = self.process.communicate(timeout=800)
        return Done(self.process.returncode, out, err, self.folder, self.mark)


def start(folder: Path, *words: str, **environ: str) -> Wrapped:
    """Everything behind `forkpoint run`, from inside the folder."""
    mark = f"{folder}-{os.getpid()}"
    command = [sys.executable, "-m", "forkpoint", "run", "--folder", "runs", "--json", "outcome.json", *words]
    return Wrapped(_popen(command, folder, {MARK: mark, **environ}), folder, mark)


def python(folder: Path, text: str) -> list[str]:
    """A command that runs this program."""
    (folder / "child.py").write_text(text)
    return ["--", sys.executable, "child.py"]


def living(mark: str) -> list[str]:
    """Command lines of processes that were started below a run and still live."""
    wanted = f"{MARK}={mark}".encode()
    found = [path.parent for path in Path("/proc").glob("[0-9]*/environ") if wanted in _read(path).split(b"\0")]
    return [_read(path / "cmdline").replace(b"\0", b" ").decode() for path in found]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _popen(command: list[str], folder: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    bin_folder = str(Path(sys.executable).parent)
    ours = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | ours | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
