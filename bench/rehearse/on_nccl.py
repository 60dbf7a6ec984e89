"""Five programs of tests/rehearse/programs/nights with NCCL, four ranks on one GPU.

    python -m bench.rehearse.on_nccl          # at most 150 s

Each is rehearsed with the kind that finds it with gloo, until a trial parts at a line marked `# here` and names the disturbed
rank, or two trials are done. Every trial is printed.
"""

import os
import sys
import tempfile
import time
from contextlib import chdir, suppress
from pathlib import Path
from typing import Final

from forkpoint.lab.ranks import SHARED_GPU
from forkpoint.rehearse.model import TrialOutcome, TrialResult
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.rehearsal import RehearsalSettings, rehearse
from forkpoint.rehearse.render import place_of
from forkpoint.rehearse.run import common_environ, plan_program

_NIGHTS: Final = Path(__file__).parents[2] / "tests" / "rehearse" / "programs" / "nights"
_KINDS: Final = {
    "updates_counted": "not-a-number",
    "reads_ahead": "exception-in-try",
    "disk_full": "no-room",
    "batch_grows": "another-value",
    "stages_by_hand": "short-batch",
}
_INIT: Final = (
    'dist.init_process_group("nccl" if cuda else "gloo")',
    'os.environ["NCCL_HOSTID"] = "node" + os.environ["RANK"]; dist.init_process_group("nccl")',
)
"""No line moves. NCCL refuses two ranks on one GPU of one host."""
_TOGETHER_S: Final = 140.0
_CALM_S: Final = 30.0


class _FoundError(Exception):
    """Ends a rehearsal whose bug is found."""


def rehearse_one(name: str, starter: WarmStart, until: float) -> str:
    source = (_NIGHTS / f"{name}.py").read_text()
    marked = {number for number, line in enumerate(source.splitlines(), 1) if "# here" in line}
    assert _INIT[0] in source, name
    best = "not found"

    def hear(result: TrialResult) -> None:
        nonlocal best
        verdict = result.verdict or {}
        print(
            f"   {result.outcome}, {result.seconds:.1f} s: {result.trial.name}\n      {result.says[:200]}", flush=True
        )
        if result.outcome is not TrialOutcome.PARTS:
            return
        places = [place_of(result), *(f"{site['file']}:{site['line']}" for site in verdict.get("sites", [])[:1])]
        has_line = any(place == f"train.py:{line}" for place in places for line in marked)
        has_rank = verdict.get("suspects") == [*result.trial.ranks]
        best = f"rank {has_rank}, line {has_line} ({places[0]}), {verdict.get('cause')}"
        if (has_line and has_rank) or time.monotonic() > until:
            raise _FoundError

    with tempfile.TemporaryDirectory() as folder, chdir(folder), suppress(_FoundError):
        Path("train.py").write_text(source.replace(*_INIT))
        settings = RehearsalSettings(3 * _CALM_S / 60, 2, (_KINDS[name],), starter=starter)
        told = rehearse(plan_program([sys.executable, "train.py"], 4, os.environ), settings, _say_nothing, hear)
        print(
            f"   calm run {told.calm.seconds:.1f} s, {len(told.results)} of {len(told.plan)} planned trials", flush=True
        )
    return best


def _say_nothing(done: int, total: int, what: str) -> None:
    """Every trial is printed as it ends."""


def main() -> int:
    os.environ.update(SHARED_GPU)
    began = time.monotonic()
    starter = WarmStart(sys.executable, common_environ(os.environ))
    print(f"torch was imported in {time.monotonic() - began:.0f} s", flush=True)
    for name in _KINDS:
        print(f"{name} with NCCL, after {time.monotonic() - began:.0f} s", flush=True)
        try:
            print(f"=> {name}: {rehearse_one(name, starter, began + _TOGETHER_S)}", flush=True)
        except Exception as error:  # noqa: BLE001 one program that cannot be rehearsed must not end the others
            print(f"=> {name}: {type(error).__name__}: {error}", flush=True)
    starter.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
