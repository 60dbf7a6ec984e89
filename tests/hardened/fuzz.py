"""Mutates captures and runs all of forkpoint over them: `python tests/hardened/fuzz.py --count 200000 --seed 1`.

Every input is a folder with a few files of a recorded case, of which one or two are changed. All of it is read, by the
compiled decoder and by Python's in turn, examined, drawn and written in every form. An exception, a part that broke, more
than 1 GB or more than 20 CPU seconds is a find; it is kept in --keep. Most captures are tiny and read in this process; every
fiftieth is a case as it was recorded, read by a confined child.

An input depends on the seed and its number alone: `--first` goes on where an earlier run stopped.
"""

# ruff: noqa: E402  runs as a script too, so its paths come first
import argparse
import gc
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

from forkpoint.errors import InputError
from hardened.mutations import Files, mutate, seeds, some_of, tiny
from hardened.whole import run_whole

MAX_CPU_S = 20.0
MAX_MB = 1024
BATCH = 500
"""Inputs that one process runs: a new one begins with little memory."""
WHOLE_EVERY = 50
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Input:
    files: Files
    whole: bool


@dataclass(frozen=True, slots=True)
class Ran:
    """An input that was run."""

    number: int
    outcome: str
    find: str
    cpu_s: float
    peak_mb: int


class Inputs:
    """All inputs of a seed, by number."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._whole = seeds()
        self._tiny = [tiny(files) for files in self._whole]

    def __getitem__(self, number: int) -> Input:
        chance = random.Random(f"{self._seed} {number}")
        if number % WHOLE_EVERY == 0:
            return Input(mutate(chance, chance.choice(self._whole)), whole=True)
        return Input(mutate(chance, some_of(chance, chance.choice(self._tiny))), whole=False)


@dataclass(slots=True)
class Tally:
    """What came of all inputs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    finds: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    peak_mb: int = 0

    def add(self, ran: Ran) -> None:
        self.outcomes[ran.outcome] += 1
        self.slowest_s = max(self.slowest_s, round(ran.cpu_s, 2))
        self.peak_mb = max(self.peak_mb, ran.peak_mb)
        if ran.find:
            self.finds[ran.find] += 1

    def as_json(self) -> dict[str, object]:
        return {"inputs": self.outcomes.total(), **dict(self.outcomes.most_common()), "finds": dict(self.finds.most_common()), "slowest_s": self.slowest_s, "peak_mb": self.peak_mb}  # fmt: skip


def fuzz(numbers: range, seed: int, keep: Path | None, minutes: float | None = None) -> Tally:
    inputs, tally = Inputs(seed), Tally()
    until = time.monotonic() + 60 * minutes if minutes else float("inf")
    at = numbers.start
    while at < numbers.stop and time.monotonic() < until:
        for ran in _in_a_fork(range(at, min(at + BATCH, numbers.stop)), inputs):
            at = ran.number + 1
            tally.add(ran)
            if keep and ran.find and tally.finds[ran.find] <= 2:
                _keep(inputs[ran.number].files, keep / f"{seed}-{ran.number}", ran.find)
        sys.stderr.write(f"{at} done, {tally.finds.total()} finds\n")
    return tally


def _keep(files: Files, folder: Path, find: str) -> None:
    _write(files, folder)
    folder.with_suffix(".txt").write_text(find)


def _write(files: Files, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def _in_a_fork(numbers: Sequence[int], inputs: Inputs) -> Iterator[Ran]:
    """Up to the first that ends the process, or after which it holds too much."""
    told, tells = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_run_all, args=(numbers, inputs, tells))
    process.start()
    tells.close()
    last = numbers[0] - 1
    while True:
        try:
            ran: Ran = told.recv()
        except EOFError:
            break
        last = ran.number
        yield ran
    process.join()
    if process.exitcode:
        yield Ran(last + 1, "ended the process", f"the process ended with {process.exitcode}", 0.0, 0)


# ------------------------------------------------------------------------------------------------------- in the process


def _run_all(numbers: Sequence[int], inputs: Inputs, tells: Connection) -> None:
    gc.freeze()
    signal.signal(signal.SIGPROF, _took_too_long)
    for number in numbers:
        ran = _run_one(number, inputs[number])
        tells.send(ran)
        if ran.peak_mb > MAX_MB:
            return


def _took_too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"more than {3 * MAX_CPU_S:.0f} CPU s")


def _run_one(number: int, given: Input) -> Ran:
    os.environ["FORKPOINT_NATIVE"] = str(number & 1)
    with tempfile.TemporaryDirectory(prefix="fuzz", dir=_memory()) as name:
        folder = Path(name)
        _write(given.files, folder)
        begin = _cpu_s()
        signal.setitimer(signal.ITIMER_PROF, 3 * MAX_CPU_S)
        outcome, find = _outcome(folder, in_process=not given.whole)
        signal.setitimer(signal.ITIMER_PROF, 0)
        cpu_s, peak_mb = _cpu_s() - begin, _peak_mb()
    find = find or (f"took {cpu_s:.0f} CPU s" if cpu_s > MAX_CPU_S else "")
    find = find or (f"took {peak_mb} MB" if peak_mb > MAX_MB else "")
    return Ran(number, outcome, find, cpu_s, peak_mb)


def _outcome(folder: Path, *, in_process: bool) -> tuple[str, str]:
    """In a word; and what is wrong, if anything."""
    try:
        verdict = run_whole([folder], in_process=in_process)
    except InputError:
        return "unreadable", ""
    except Exception as error:  # noqa: BLE001 - the find
        return "broken", _place(traceback.format_exception(error))
    if verdict.internal:
        problem = verdict.internal[0]
        return "broken inside", f"{problem.part}: {_place(problem.trace.splitlines(keepends=True))}"
    return str(verdict.cause), ""


def _place(trace: list[str]) -> str:
    """The innermost line of forkpoint, and what was raised: one find for each."""
    places = re.findall(r'File ".*?(forkpoint/\S+)", line (\d+)', "".join(trace))
    return f"{':'.join(places[-1]) if places else ''} {trace[-1].strip()[:80]}"


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _cpu_s() -> float:
    """Of this process and of the children that read for it."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _peak_mb() -> int:
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--keep", type=Path, help="a folder for inputs that broke something")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.count)
    tally = fuzz(numbers, arguments.seed, arguments.keep, arguments.minutes)
    sys.stdout.write(json.dumps(tally.as_json(), indent=1) + "\n")


if __name__ == "__main__":
    main()
