"""Real jobs, one after another, each with its own fault. Prints a line of JSON for each.

In a process of its own: Monarch keeps threads and handlers until a process ends.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import monarch.actor

from controller.trainer import Trainer
from forkpoint.controller import Controller, StepFailed
from forkpoint.errors import UsageError
from forkpoint.report.json_report import render_json


def tell(name: str, run: Callable[[dict[str, object]], None]) -> None:
    said: dict[str, object] = {"name": name}
    try:
        run(said)
    except StepFailed as failed:
        said |= {"call": failed.call, "method": failed.method, "verdict": json.loads(render_json(failed.verdict))}
        said |= {"files": sorted(path.name for path in Path(failed.folder).iterdir()), "text": str(failed)}
    print(json.dumps(said | {"left": ranks_left()}), flush=True)  # noqa: T201 - this is how a process answers


def ranks_left() -> list[str]:
    """Processes of ranks that this one has started and that still run."""
    threads = Path(f"/proc/{os.getpid()}/task").iterdir()
    children = [pid for thread in threads for pid in read_if_there(thread / "children").split()]
    return [
        pid.decode() for pid in children if b"bootstrap_main" in read_if_there(Path(f"/proc/{pid.decode()}/cmdline"))
    ]


def read_if_there(path: Path) -> bytes:
    """Threads and processes end while they are listed."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def healthy_then(method: str) -> Callable[[dict[str, object]], None]:
    def run(said: dict[str, object]) -> None:
        job = Controller(3, Trainer, every_call=True)
        try:
            with job:
                said["running"] = len(ranks_left())
                said["steps"] = [job.run("step", number) for number in range(3)]
                said["passed"] = job.run("pass_along")
                job.run(method)
        finally:
            said["after"] = refused(job)

    return run


def healthy_to_the_end(said: dict[str, object]) -> None:
    with Controller(1, Trainer) as job:
        said["steps"] = [job.run("step", number=7)]
        said["running"] = len(ranks_left())
    said["after"] = refused(job)


def refused(job: Controller) -> str:
    """Why it takes no more calls."""
    try:
        job.run("step", 8)
    except UsageError as error:
        return str(error)
    return ""


def fault(method: str, ranks: int, timeout_s: float = 300.0) -> Callable[[dict[str, object]], None]:
    def run(said: dict[str, object]) -> None:
        with Controller(ranks, Trainer, timeout_s=timeout_s) as job:
            job.run("step", 0)
            job.run(method)

    return run


def fault_of_others(heard: list[str]) -> Callable[[dict[str, object]], None]:
    def run(said: dict[str, object]) -> None:
        monarch.actor.unhandled_fault_hook(SimpleNamespace(mesh_name="of another program"))
        said["heard"] = heard

    return run


if __name__ == "__main__":
    of_others: list[str] = []
    monarch.actor.unhandled_fault_hook = lambda failure: of_others.append(failure.mesh_name)
    tell("skipped", healthy_then("skip_one"))
    tell("exited", fault("exit_on_one", 2))
    if "all" in sys.argv:
        tell("other type", healthy_then("take_other_type"))
        tell("raised", fault("fail_on_one", 3))
        tell("stalled", fault("stall_on_one", 3, timeout_s=40.0))
        tell("ended", healthy_to_the_end)
    tell("of others", fault_of_others(of_others))
