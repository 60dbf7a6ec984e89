"""Applies a fault's edits to its job."""

from dataclasses import dataclass

from forkpoint.lab.fault import Fault


@dataclass(frozen=True, slots=True)
class Patched:
    text: str
    guilty: tuple[tuple[int, int], ...]
    """First and last line of each place that is the mistake."""


def patch(fault: Fault) -> Patched:
    """Raises ValueError if an edit's text is not in the job exactly once: job and fault no longer match."""
    job = fault.job.text
    for edit in fault.edits:
        if job.count(edit.find) != 1:
            raise ValueError(f"{fault.name}: found {job.count(edit.find)} times in {fault.job.name}: {edit.find!r}")
    text, rest, guilty = "", job, list[tuple[int, int]]()
    for edit in sorted(fault.edits, key=lambda edit: job.index(edit.find)):
        before, _, rest = rest.partition(edit.find)
        text += before
        first = text.count("\n") + 1
        text += edit.replace
        if edit.guilty:
            guilty.append((first, max(first, first + edit.replace.rstrip("\n").count("\n"))))
    return Patched(text + rest, tuple(guilty))
