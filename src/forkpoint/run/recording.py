"""The variables that make a job leave evidence. What its user set stays as it is."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from forkpoint.launch_env.recorder import (
    BUFFER,
    DUMP,
    DYNAMIC,
    ENTRIES,
    NEW_DUMP,
    OLD_BUFFER,
    OLD_PREFIX,
    PREFIX,
    buffer_names,
    prefix_names,
)
from forkpoint.launch_env.release import Release
from forkpoint.run.folders import AttemptFolder


def recording(dump_prefix: str, environ: Mapping[str, str], release: Release | None) -> dict[str, str]:
    """By the names that this torch reads. Where it is not known, by both: each release reads those it knows, and newer
    ones then warn of the older name. Where the user chose either, by none.
    """
    wanted = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    if not any(map(environ.get, (DUMP, NEW_DUMP))):
        wanted[DUMP] = "1"
    if not any(map(environ.get, (BUFFER, OLD_BUFFER))):
        names = buffer_names(release)[:1] if release else (BUFFER, OLD_BUFFER)
        wanted |= dict.fromkeys(names, str(ENTRIES))
    if not any(map(environ.get, (PREFIX, OLD_PREFIX, DYNAMIC))):
        names = prefix_names(release)[:1] if release else (PREFIX, OLD_PREFIX)
        wanted |= dict.fromkeys(names, dump_prefix)
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def naming(environ: Mapping[str, str]) -> dict[str, str]:
    """For torchrun itself: what it passes on then says which rank speaks."""
    name = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
    return {} if environ.get(name) else {name: "[rank${rank}]:"}


def guarding(place: AttemptFolder, environ: Mapping[str, str], stall_s: float, source: str | None) -> dict[str, str]:
    """The guard writes all ranks' dumps and stacks when nothing has moved for so long."""
    wanted = {
        "FORKPOINT": "dump",
        "FORKPOINT_STALL_S": f"{stall_s:g}",
        "FORKPOINT_DIR": str(place.guard),
        "FORKPOINT_SOURCE": source or "",
    }
    return {name: value for name, value in wanted.items() if value and not environ.get(name)}


def fetch_dumps(place: AttemptFolder, environ: Mapping[str, str], since: float) -> None:
    """Dumps that the user's own setting sent elsewhere, of this attempt only: copied to the rest."""
    prefix = environ.get(PREFIX) or environ.get(OLD_PREFIX)
    if prefix is None or not Path(prefix).parent.is_dir():
        return
    for path in sorted(Path(prefix).parent.iterdir()):
        if path.name.startswith(Path(prefix).name) and path.is_file() and path.stat().st_mtime >= since:
            shutil.copy2(path, place.dumps / path.name)
