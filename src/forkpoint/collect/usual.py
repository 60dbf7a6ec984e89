"""Default places of evidence: from the environment, each torch release's defaults, and the launcher."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from forkpoint.collect.processes import LiveRank
from forkpoint.watch.sources.pipes import usual_prefixes

_WRITERS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ATTEMPT = re.compile(r"(.{1,4000})/attempt_\d{1,6}/\d{1,7}/[^/]{1,255}\Z")
_RANK_IN_FILE = re.compile(r"\d{1,7}(?:\.\w{1,10})?\Z")


def usual_paths(ranks: Iterable[LiveRank], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Files and folders that are there."""
    found: list[str] = []
    for prefix in _prefixes(environ):
        found += dumps_of(prefix)
    found += _of_environment(environ, os.getcwd())  # noqa: PTH109 - a text like the others
    for rank in ranks:
        found += [path for prefix in told_prefixes(rank.environ) for path in dumps_of(str(Path(rank.folder, prefix)))]
        found += _of_environment(rank.environ, rank.folder)
        found += rank.outputs
    return list(dict.fromkeys(found))


def dumps_of(prefix: str) -> list[str]:
    """What ranks have written under this prefix: the rank is appended."""
    folder, start = os.path.split(prefix)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in entries if entry.name.startswith(start)]
    except OSError:
        return []
    return sorted(str(Path(folder, name)) for name in names if _RANK_IN_FILE.fullmatch(name[len(start) :]))


def _prefixes(environ: Mapping[str, str]) -> list[str]:
    cache = environ.get("XDG_CACHE_HOME")
    return [*usual_prefixes(), *([f"{cache}/torch/comm_lib_trace_rank_"] if cache else [])]


def told_prefixes(environ: Mapping[str, str]) -> list[str]:
    return [environ[name] for name in _WRITERS if environ.get(name)]


def _of_environment(environ: Mapping[str, str], folder: str) -> list[str]:
    """The guard's folder, torchrun's --log-dir by the error file that it gives its ranks, and Slurm's default output."""
    places: list[Path] = []
    if environ.get("FORKPOINT"):
        places.append(Path(folder, environ.get("FORKPOINT_DIR") or "forkpoint-guard"))
    elif environ.get("FORKPOINT_DIR"):
        places.append(Path(folder, environ["FORKPOINT_DIR"]))
    if attempt := _ATTEMPT.match(environ.get("TORCHELASTIC_ERROR_FILE", "")):
        places.append(Path(attempt[1]))
    job = environ.get("SLURM_JOB_ID", "")
    if job.isascii() and job.isdecimal():
        places += [Path(environ.get("SLURM_SUBMIT_DIR") or folder, f"slurm-{job}.{end}") for end in ("out", "err")]
    return [str(place) for place in places if place.exists()]
