"""What a job script omits or gets wrong, by the same checks as for a running job. Nothing of it is run."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.doctor.checks.recorder import (
    RECORDER_BUFFER,
    RECORDER_DUMP,
    RECORDER_ON,
    RECORDER_PATH_UNIQUE,
    RECORDER_TIMING,
)
from forkpoint.doctor.checks.settings import ASYNC_ERROR_HANDLING, TIMEOUTS
from forkpoint.doctor.report import CheckStatus, DoctorCheck
from forkpoint.doctor.system import empty_machine, with_environ, with_packages
from forkpoint.knowledge.recorder import Release, wanted
from forkpoint.knowledge.variables import Assignment, assignments, unread, wrong_value
from forkpoint.report.escape import escape, json_text

_CHECKS: tuple[DoctorCheck, ...] = (
    RECORDER_ON,
    RECORDER_BUFFER,
    RECORDER_DUMP,
    RECORDER_PATH_UNIQUE,
    RECORDER_TIMING,
    ASYNC_ERROR_HANDLING,
    TIMEOUTS,
)
_LAUNCHES = re.compile(
    r"(?<![\w./-])(?:torchrun|srun|mpirun|deepspeed|accelerate launch|python[\d.]* -m torch\.distributed)\s"
)
_ASKS = re.compile(r"^\s*#|\$\(|`|hostname")
"""Lines that start no rank: comments, and commands whose output is used."""
_SRUN_EXPORT = re.compile(r"--export[= ](?!ALL\b)(?P<what>\S+)")
_TORCHRUN = re.compile(r"(?<![\w./-])torchrun\s")
_KEEPS_LOGS = re.compile(r"--(?:log[-_]dir|tee|redirects|logs[-_]specs)\b|\s-[rt]\s")
_DANGERS = (
    (
        re.compile(r"\bpkill\s+(?:-\S+\s+)*-\w*f\b|\bkillall\b"),
        "ends every process that matches, of any job on the node",
        "end ranks by their pids, or let the launcher do it",
    ),
    (
        re.compile(r"\brm\s+(?:-\S+\s+)*/dev/shm/nccl"),
        "breaks jobs that run on the node, of any user",
        "look who owns the files first: forkpoint doctor --only shared-memory",
    ),
    (
        re.compile(r"\bkill\s+-(?:SIG)?USR[12]\b"),
        "ends a process that has no handler for it",
        "register one in the program first: faulthandler.register(signal.SIGUSR1)",
    ),
)


@dataclass(frozen=True, slots=True)
class ScriptProblem:
    line: int | None
    """None for what is missing from the whole script."""
    about: str
    """A variable, or the name of a check."""
    says: str
    fix: str


def check_script(text: str, release: Release | None) -> tuple[ScriptProblem, ...]:
    """In the order of lines; missing settings come last. Without a release, what depends on it is not judged."""
    lines = text.splitlines()
    found = assignments(lines)
    started = _started(lines)
    late = [each for each in found if started is not None and each.line > started]
    problems = [*_variables(found, release), *_commands(lines), *_logs(lines)]
    problems += [
        ScriptProblem(each.line, each.name, f"set after the job is started in line {started}", "move it up")
        for each in late
    ]
    problems += _settings([each for each in found if each not in late], release, per_pod="subPathExpr:" in text)
    return tuple(sorted(dict.fromkeys(problems), key=lambda each: (each.line is None, each.line or 0, each.about)))


def _variables(found: Sequence[Assignment], release: Release | None) -> Iterator[ScriptProblem]:
    environ = {each.name: each.value for each in found}
    for each in found:
        if nobody := unread(each.name, environ, release):
            yield ScriptProblem(each.line, each.name, nobody.why, nobody.instead)
        elif each.is_known and (why := wrong_value(each.name, each.value)):
            yield ScriptProblem(each.line, each.name, f"{each.value!r} is {why}", f"correct or remove {each.name}")


def _commands(lines: Sequence[str]) -> Iterator[ScriptProblem]:
    for number, line in enumerate(lines, 1):
        code = line.partition(" #")[0]
        if code.lstrip().startswith("#"):
            continue
        for pattern, says, fix in _DANGERS:
            if match := pattern.search(code):
                yield ScriptProblem(number, match[0].strip(), says, fix)
        if "srun" in code and (export := _SRUN_EXPORT.search(code)):
            yield ScriptProblem(number, export[0], "hides the script's variables from the ranks", "srun --export=ALL")


def _started(lines: Sequence[str]) -> int | None:
    """The last line of the last command that starts ranks; None if there is none. `$(srun hostname)` starts none."""
    starts = [n for n, line in enumerate(lines, 1) if _LAUNCHES.search(f"{line} ") and not _ASKS.search(line)]
    if not starts:
        return None
    return next(n for n in range(starts[-1], len(lines) + 1) if n == len(lines) or not lines[n - 1].endswith("\\"))


def _logs(lines: Sequence[str]) -> Iterator[ScriptProblem]:
    starts = [n for n, line in enumerate(lines, 1) if _TORCHRUN.search(f"{line} ") and not _ASKS.search(line)]
    if starts and not _KEEPS_LOGS.search("\n".join(lines)):
        yield ScriptProblem(starts[-1], "torchrun", "keeps no log per rank", 'add --log-dir "$DUMPS/logs" --tee 3')


def _settings(found: Sequence[Assignment], release: Release | None, *, per_pod: bool) -> Iterator[ScriptProblem]:
    """`per_pod`: the script mounts a separate folder for each pod, so paths need not name the job."""
    if release is None:
        return
    environ = _environ(found, release)
    machine = with_environ(with_packages(empty_machine(), {"torch": f"{release}.0"}), environ)
    lines = {each.name: each.line for each in found}
    for check in _CHECKS:
        result = check.look(machine)
        if result.status is CheckStatus.BAD and not (per_pod and check is RECORDER_PATH_UNIQUE):
            named = [line for name, line in lines.items() if re.search(rf"\b{name}\b", result.says)]
            yield ScriptProblem(min(named, default=None), check.name, result.says, result.fix or "")


def _environ(found: Sequence[Assignment], release: Release) -> Mapping[str, str]:
    """Computed values are assumed to be right, and a computed path to name the job."""
    right = {setting.name: setting.value for setting in wanted(release) if not setting.in_folder}
    known = {each.name: each.value for each in found if each.is_known}
    computed = {each.name: right.get(each.name, f"${each.value}") for each in found if not each.is_known}
    return {**computed, **known}


# ---------------------------------------------------------------------------------------------------------------------
# Problems of a job script -> text or JSON, schema `forkpoint.env-check/1`.

SCHEMA = "forkpoint.env-check/1"


def render_text(path: str, problems: Sequence[ScriptProblem]) -> str:
    """`file:line: what`, which editors can open, with the fix below."""
    if not problems:
        return f"{escape(path)}: nothing missing, wrong or misspelt was found"
    lines: list[str] = []
    for problem in problems:
        where = escape(path) if problem.line is None else f"{escape(path)}:{problem.line}"
        lines += [f"{where}: {escape(problem.about)}: {escape(problem.says)}", f"    fix: {escape(problem.fix)}"]
    return "\n".join(lines)


def render_json(path: str, release: Release | None, problems: Sequence[ScriptProblem]) -> str:
    rows = [
        {"line": problem.line, "about": problem.about, "says": problem.says, "fix": problem.fix} for problem in problems
    ]
    return json_text({"schema": SCHEMA, "script": path, "torch": str(release) if release else None, "problems": rows})
