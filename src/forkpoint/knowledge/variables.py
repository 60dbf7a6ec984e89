"""Environment variables: which ones are read at all, valid values, what a job script sets, and which may be shown."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.knowledge.base import Entry, EntryKind, entries
from forkpoint.knowledge.recorder import Release, Setting, parse_bool, parse_number

# ---------------------------------------------------------------------------------------------------------------------
# Variables that nothing reads: names that never existed, are misspelled, or are newer than this torch.

_NCCL_NAMES = Path(__file__).parent / "nccl_names.txt"

_OF_TORCH = frozenset(
    {
        # Read by torch, but without an entry in the knowledge base: they have nothing to do with hangs.
        "TORCHELASTIC_ETCD_BINARY_PATH",
        "TORCHELASTIC_TIMER_FILE",
        "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT",
        "TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK",
        "TORCH_NCCL_ABORT_IN_DESTROY_PG",
        "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING",
    }
)
_CLOSED_FAMILIES = ("TORCH_NCCL_", "TORCH_FR_")
"""Only torch reads names with these prefixes, and all of them are known: nothing reads any other."""
_OPEN_FAMILIES = ("NCCL_", "TORCHELASTIC_", "TORCH_DISTRIBUTED_", "P2P_LEVEL")
"""Plug-ins and clusters add their own names here: only a name that is spelled almost like a known one is a mistake."""
FAMILIES = (*_CLOSED_FAMILIES, *_OPEN_FAMILIES)
_ALMOST = 0.88
_NEAR = 0.75
SINCE = {
    "TORCH_FR_BUFFER_SIZE": (Release(2, 8), "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    "TORCH_FR_DUMP_TEMP_FILE": (Release(2, 8), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    "TORCH_FR_CPP_STACK": (Release(2, 8), "TORCH_NCCL_TRACE_CPP_STACK"),
    "TORCH_FR_DUMP_ON_TIMEOUT": (Release(2, 14), "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    "TORCH_FR_DUMP_DYNAMIC_FILE_NAME": (Release(2, 10), None),
}
"""Names that older releases do not read: (first release that does, the name that older ones read)."""


class Unread(Struct, frozen=True):
    name: str
    why: str
    instead: str
    """What to set or do, as the end of a sentence."""


def unread(name: str, environ: Mapping[str, str], release: Release | None) -> Unread | None:
    """Why this variable has no effect; None if it is read, or belongs to something we do not know."""
    entry = _entries().get(name)
    if entry is not None and dict(entry.facts).get("read by", "").startswith("nothing"):
        return Unread(name, f"{entry.title}: nothing reads it", entry.do[0] if entry.do else "unset it")
    if name in known_names():
        return _too_new(name, environ, release)
    if not name.startswith(FAMILIES):
        return None
    return _misspelt(name)


def _too_new(name: str, environ: Mapping[str, str], release: Release | None) -> Unread | None:
    since, older = SINCE.get(name, (None, None))
    if since is None or release is None or release >= since or (older is not None and older in environ):
        return None
    return Unread(name, f"read from torch {since} on; this is {release}", f"set {older}" if older else "unset it")


def _misspelt(name: str) -> Unread | None:
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for unknown names

    closed = name.startswith(_CLOSED_FAMILIES)
    near = get_close_matches(name, known_names(), n=1, cutoff=_NEAR if closed else _ALMOST)
    if near:
        return Unread(name, f"no such variable; did you mean {near[0]}?", f"set {near[0]} instead")
    if closed:
        return Unread(name, "no release of torch up to 2.14 reads it", "unset it")
    return None


@cache
def known_names() -> frozenset[str]:
    """What NCCL, torch and torchrun read, in any release."""
    nccl = (line for line in _NCCL_NAMES.read_text(encoding="ascii").splitlines() if not line.startswith("#"))
    real = (name for name, e in _entries().items() if not dict(e.facts).get("read by", "").startswith("nothing"))
    return frozenset((*nccl, *real, *_OF_TORCH))


@cache
def _entries() -> dict[str, Entry]:
    """Entries by every spelling that is the name of a variable."""
    return {
        name: entry
        for entry in entries(EntryKind.VARIABLE)
        for name in (*entry.aliases, entry.code)
        if name.isupper() and " " not in name
    }


# ---------------------------------------------------------------------------------------------------------------------
# Values that make torch raise, or that NCCL ignores.

_WORDS = {
    "TORCH_DISTRIBUTED_DEBUG": ("OFF", "INFO", "DETAIL"),
    "NCCL_DEBUG": ("VERSION", "WARN", "INFO", "ABORT", "TRACE"),
    "TORCH_CPP_LOG_LEVEL": ("INFO", "WARNING", "ERROR", "FATAL", "0", "1", "2", "3"),
}
_NUMBERS = ("entries", "milliseconds", "seconds")


def has_known_values(name: str) -> bool:
    return name in _WORDS or _unit(name) in ("bool", *_NUMBERS)


def wrong_value(name: str, value: str) -> str | None:
    """What is wrong with the value, as the end of a sentence; None if it is valid."""
    if name in _WORDS:
        return None if value.upper() in _WORDS[name] else f"none of {', '.join(_WORDS[name])}"
    unit = _unit(name)
    if unit == "bool" and parse_bool(value) is None:
        return "neither yes nor no (1, 0, true, false)"
    if unit in _NUMBERS and parse_number(value) is None:
        return "not a whole number"
    return None


def _unit(name: str) -> str:
    return _units().get(name, "")


@cache
def _units() -> dict[str, str]:
    """Units of torch's own variables. NCCL parses its variables differently."""
    facts = {name: dict(e.facts) for e in entries(EntryKind.VARIABLE) for name in (*e.aliases, e.code)}
    return {name: fact.get("unit", "") for name, fact in facts.items() if fact.get("read by") == "PyTorch"}


# ---------------------------------------------------------------------------------------------------------------------
# Variables that a job script sets (shell, batch script, YAML, Dockerfile or Python), read as text. Nothing is executed.

_NAME = r"(?P<name>(?:NCCL|TORCH[A-Z]*|PYTORCH|RAY|PYTHON|CUDA)_?[A-Z0-9_]*|P2P_LEVEL|MASTER_ADDR|MASTER_PORT)"
_VALUE = r"(?P<value>[fr]?\"[^\"]*\"|[fr]?'[^']*'|[^\s,;#\"'\])}&|]*)"
_FORMS = (
    # NAME=value, in a shell, in --export=ALL,NAME=value, after `env`, `-x` or Docker's ENV
    re.compile(rf"(?<![\w$\{{.-]){_NAME}=(?!=){_VALUE}"),
    # "NAME": "value"; NAME: value
    re.compile(rf"(?<![\w$\{{]){_NAME}[\"']?:\s*{_VALUE}"),
    # setenv NAME value; ENV NAME value
    re.compile(rf"(?:setenv\s+|^\s*ENV\s+){_NAME}\s+{_VALUE}"),
)
_PYTHON = re.compile(rf"(?:\[|setdefault\(|putenv\()[\"']{_NAME}[\"'](?:\]\s*=|,)\s*{_VALUE}")
"""os.environ["NAME"] = "value", or setdefault. A value without quotes is an expression."""
_YAML_NAME = re.compile(rf"^\s*-?\s*name:\s*[\"']?{_NAME}[\"']?\s*(?:#.*)?$")
_YAML_VALUE = re.compile(rf"^\s*-?\s*value:\s*{_VALUE}")
_COMMENT = re.compile(r"(?:^|\s)#(?!SBATCH|PBS|BSUB).*$")
_QUOTES = ('"', "'")
_UNKNOWN = re.compile(r"[$`{]|%\(")
"""Signs that the value is known only when the script runs."""


class Assignment(Struct, frozen=True):
    name: str
    value: str
    line: int
    is_known: bool
    """False: the script computes the value."""


def assignments(lines: Sequence[str]) -> tuple[Assignment, ...]:
    """In the order of the script. A variable that is set twice is listed twice."""
    code = [_COMMENT.sub("", line) for line in lines]
    found = [each for number, line in enumerate(code, 1) for each in _in_line(line, number)]
    found += _yaml_pairs(code)
    return tuple(sorted(found, key=lambda each: each.line))


def _in_line(line: str, number: int) -> Iterator[Assignment]:
    for form in _FORMS:
        for match in form.finditer(line):
            yield _assignment(match["name"], match["value"], number)
    for match in _PYTHON.finditer(line):
        each = _assignment(match["name"], match["value"], number)
        yield each if match["value"][-1:] in _QUOTES else replace(each, is_known=False)


def _yaml_pairs(lines: Sequence[str]) -> Iterator[Assignment]:
    """`- name: NAME` with `value: ...` below it, as in Kubernetes."""
    for number, (line, below) in enumerate(pairwise(lines), 1):
        name, value = _YAML_NAME.match(line), _YAML_VALUE.match(below)
        if name and value:
            yield _assignment(name["name"], value["value"], number)


def _assignment(name: str, value: str, line: int) -> Assignment:
    quoted = value[-1:] in _QUOTES
    text = value.lstrip("fr")[1:-1] if quoted else value
    return Assignment(name, text, line, is_known=not _UNKNOWN.search(text))


# ---------------------------------------------------------------------------------------------------------------------
# Which environment variables may be shown: only those known to be harmless, since any name may hold a secret.

_SHOWN_PREFIXES = ("NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "CUDA_", "NVIDIA_", "GLOO_", "UCX_", "FI_", "OMP_", "MKL_",
    "SLURM_", "OMPI_", "PMI_", "RAY_", "FORKPOINT", "PYTHON")  # fmt: skip
_SHOWN_NAMES = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOSTNAME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LANG", "TZ"})  # fmt: skip
_SECRETS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "KEY", "COOKIE", "JWT", "AUTH")


def may_be_shown(variable: str) -> bool:
    name = variable.upper()
    if any(secret in name for secret in _SECRETS):
        return False
    return name in _SHOWN_NAMES or name.startswith(_SHOWN_PREFIXES)


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be shown, with their values, which are not redacted yet."""
    return {name: environment[name] for name in sorted(environment) if may_be_shown(name)}


# ---------------------------------------------------------------------------------------------------------------------
# How each launcher passes settings to its ranks: what `forkpoint env` prints for it.


class Launcher(Struct, frozen=True):
    name: str
    adds: Callable[[Release | None], tuple[Setting, ...]]
    """Additional settings for this launcher."""
    render: Callable[[Sequence[Setting], str], str]
    """(settings, folder for the folders of all jobs) -> text to paste, with a comment for each setting."""


def _export_lines(settings: Sequence[Setting], folder: str, job: str) -> list[str]:
    """For a shell script: creates a folder per job, since torch does not, and has one line per setting."""
    lines = [f"JOB={job}", f'DUMPS={shlex.quote(folder)}/"$JOB"', 'mkdir -p "$DUMPS"']
    shown = [(f"export {setting.name}={_shell_value(setting)}", setting.why) for setting in settings]
    column = max(len(line) for line, _ in shown)
    return [*lines, *(f"{line:<{column}}  # {why}" for line, why in shown)]


def _shell_value(setting: Setting) -> str:
    return f'"$DUMPS/{setting.value}"' if setting.in_folder else shlex.quote(setting.value)


_GRACE_SINCE = Release(2, 13)
"""The first release that reads TORCH_ELASTIC_SHUTDOWN_TIMEOUT, as far as known."""


def _torchrun_adds(release: Release | None) -> tuple[Setting, ...]:
    handling = Setting(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", "torchrun sets 1, whose abort can block before the dump is out"
    )
    grace = Setting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90", "torchrun kills after 30 s; a dump may take a minute")
    return (handling, grace) if release is None or release >= _GRACE_SINCE else (handling,)


def _render_torchrun(settings: Sequence[Setting], folder: str) -> str:
    """torchrun: workers inherit the shell's variables, except those for error handling and log files, which it sets."""
    lines = [
        "# before torchrun, on every node; the same JOB on all of them",
        *_export_lines(settings, folder, '"${SLURM_JOB_ID:-$(date +%Y%m%d-%H%M%S)}"'),
        "# one log per rank, which torchrun does not keep by itself:",
        '# torchrun --rdzv-id "$JOB" --log-dir "$DUMPS/logs" --tee 3 ...',
    ]
    return "\n".join(lines)


def _render_srun(settings: Sequence[Setting], folder: str) -> str:
    """Slurm: tasks inherit the batch script's variables unless --export says otherwise."""
    lines = [
        "# in the batch script, before srun; a requeued job gets a folder of its own",
        *_export_lines(settings, folder, '"${SLURM_JOB_ID}_${SLURM_RESTART_COUNT:-0}"'),
        "# one log per rank, and no rank left waiting for one that ended:",
        '# srun --export=ALL --output="$DUMPS/log_rank_%t.txt" --kill-on-bad-exit=1 python train.py',
    ]
    return "\n".join(lines)


def _render_kubernetes(settings: Sequence[Setting], folder: str) -> str:
    """Kubernetes: variables are in the pod's template; what is not on a volume is lost with the pod.

    Every value is quoted: YAML would read 1 as a number, which Kubernetes rejects.
    """
    lines = [
        "# in the pod's template; a pod that is replaced gets a folder of its own, made by Kubernetes",
        "terminationGracePeriodSeconds: 90  # a dump may take a minute",
        "containers:",
        "  - name: trainer",
        "    env:",
        "      - name: POD_UID",
        "        valueFrom: {fieldRef: {fieldPath: metadata.uid}}",
    ]
    for setting in settings:
        value = f"{folder.rstrip('/')}/{setting.value}" if setting.in_folder else setting.value
        lines += [f"      - name: {setting.name}  # {setting.why}", f"        value: {json.dumps(value)}"]
    lines += [
        "    volumeMounts:",
        "      - name: dumps",
        f"        mountPath: {json.dumps(folder)}",
        "        subPathExpr: $(POD_UID)",
        "volumes:",
        "  - name: dumps  # one that outlives the pod",
        "    persistentVolumeClaim: {claimName: dumps}",
    ]
    return "\n".join(lines)


def _ray_adds(_release: Release | None) -> tuple[Setting, ...]:
    return (Setting("RAY_DEDUP_LOGS", "0", "Ray folds equal lines of ranks into one; set it for the driver as well"),)


def _render_ray(settings: Sequence[Setting], folder: str) -> str:
    """Ray: workers do not inherit the driver's shell; variables go into the runtime environment."""
    lines = [
        "# in the driver, before ray.init; and in its shell: export RAY_DEDUP_LOGS=0",
        "import os, time",
        f'dumps = os.path.join({json.dumps(folder)}, time.strftime("%Y%m%d-%H%M%S"))',
        "os.makedirs(dumps)  # on a file system that all nodes share",
        "runtime_env = {",
        '    "env_vars": {',
    ]
    for setting in settings:
        value = f'f"{{dumps}}/{setting.value}"' if setting.in_folder else json.dumps(setting.value)
        lines.append(f'        "{setting.name}": {value},  # {setting.why}')
    lines += ["    }", "}", "ray.init(runtime_env=runtime_env)"]
    return "\n".join(lines)


def _adds_nothing(_release: Release | None) -> tuple[Setting, ...]:
    return ()


LAUNCHERS = (
    Launcher("torchrun", _torchrun_adds, _render_torchrun),
    Launcher("srun", _adds_nothing, _render_srun),
    Launcher("kubernetes", _adds_nothing, _render_kubernetes),
    Launcher("ray", _ray_adds, _render_ray),
)
