"""Folder -> what there is to show of it. The work is done by a process of its own (`worker`): it can be ended when it
takes too long or the server stops, and what goes wrong in it leaves the other incidents alone.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from forkpoint.serve.folders import Folder

_LIMIT_S = 1800.0
"""10,000 ranks with 2,000 calls each take about six minutes; a shared login node may be five times as slow."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is asked for."""

    path: str
    source: tuple[str, ...]
    embed_source: bool
    events: str
    """Where the page hears of news."""
    home: str | None
    """The list of incidents, if there is one."""


@dataclass(frozen=True, slots=True)
class Row:
    """A verdict in the list of incidents."""

    cause: str
    suspects: str
    confidence: float
    when: str | None
    """The last moment that is dated in UTC."""
    summary: str


@dataclass(frozen=True, slots=True)
class Diagnosed:
    row: Row
    html: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    why: str


@dataclass(frozen=True, slots=True)
class Diagnoser:
    source: Sequence[str] = ()
    embed_source: bool = False
    limit_s: float = _LIMIT_S

    async def __call__(self, folder: Folder, events: str, home: str | None) -> Diagnosed | Failed:
        """Ends the worker when it is cancelled."""
        task = Task(folder.path, tuple(self.source), self.embed_source, events, home)
        # -P: the folder this was started in may be the one with the evidence, and no module is taken from there.
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "forkpoint.serve.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server, which then ends its workers
        )
        try:
            out, err = await asyncio.wait_for(worker.communicate(json.dumps(asdict(task)).encode()), self.limit_s)
        except TimeoutError:
            return Failed(f"not done after {self.limit_s:.0f} s; try `forkpoint diagnose` on this folder")
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        if worker.returncode:
            last = err.decode(errors="replace").strip().rpartition("\n")[2]
            return Failed(f"the diagnosis broke off ({last or f'exit code {worker.returncode}'})")
        return _read_answer(out)


def _read_answer(out: bytes) -> Diagnosed | Failed:
    """A line of JSON, then the page."""
    head, _, html = out.partition(b"\n")
    answer = json.loads(head)
    return Failed(answer["error"]) if "error" in answer else Diagnosed(Row(**answer), html)
