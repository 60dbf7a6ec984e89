"""What the recorder was told to keep, and which variables switch it on, by the torch release that wrote a dump: as
lines to export.
"""

from itertools import groupby

from forkpoint.knowledge.recorder import Release, recorder_settings
from forkpoint.model.incident import Incident, fact
from forkpoint.model.records import TIMED

# Schema of the dump -> the oldest torch release that writes it, and all that do.
_RELEASES = {
    "": (Release(2, 2), "2.2"),
    "1.4": (Release(2, 3), "2.3"),
    "2.1": (Release(2, 4), "2.4"),
    "2.4": (Release(2, 5), "2.5 to 2.7"),
    "2.9": (Release(2, 8), "2.8"),
}
_NEWEST = Release(2, 9), "2.9 or later"
_FOLDER = "/shared/dumps/$JOB"


@fact
def starts_are_kept(incident: Incident) -> bool:
    """Start events are recorded in this job (TORCH_NCCL_ENABLE_TIMING=1): an op that reads `scheduled` has not started."""
    return bool((incident.timeline.traces.in_order.heads["flags"] & TIMED).any())


def shows_start(rank: int, incident: Incident) -> bool:
    """In a dump without finished ops, no op may have started: then the job's other dumps tell."""
    trace = incident.timeline.traces[rank]
    return trace.timed or (trace.is_partial and starts_are_kept(incident))


def how_to_record(incident: Incident) -> tuple[str, ...]:
    """The lines to export before the next run. The dump's schema tells the release only roughly, so they are those for
    the oldest possible one.
    """
    schema = max({t.schema for t in incident.timeline.traces.values()}, key=_version)
    release, named = _RELEASES.get(schema, _NEWEST)
    alike = groupby(recorder_settings(release), key=lambda setting: (setting.value, setting.in_folder))
    lines = [
        _line(tuple(setting.name for setting in (first, *older)), first.value, first.why, in_folder=in_folder)
        for (_, in_folder), (first, *older) in alike
    ]
    return (f"{lines[0]} (torch {named})", *lines[1:])


def _line(names: tuple[str, ...], value: str, why: str, *, in_folder: bool) -> str:
    """One setting, under all its names."""
    told = f"{_FOLDER}/{value}" if in_folder else value
    return f"export {' '.join(f'{name}={told}' for name in names)}   # {why}"


def _version(schema: str) -> tuple[int, ...]:
    """Pairs of numbers, never floats: 2.10 comes after 2.9."""
    return tuple(int(part) for part in schema.split(".") if part.isdigit())
