"""Entry point for callers with a verdict: store it, and say whether it was seen before. A failing store costs a warning.

`python -m forkpoint.history.keeping` does it for processes that must not load a database client, such as the guard inside
a training process (`keep_incident` in `live/children.py`): a `KeepTask` as JSON on standard input.
"""

import json
import sys
from dataclasses import dataclass

import msgspec

from forkpoint.errors import StoreError
from forkpoint.history.incident import KeptIncident

_MISSING = "pip install 'forkpoint[history]'"


@dataclass(frozen=True, slots=True)
class KeepResult:
    seen: tuple[str, ...] = ()
    """Lines about earlier incidents at the same fork."""
    problem: str | None = None
    """Why the store could not be used."""


@dataclass(frozen=True, slots=True)
class KeepTask:
    store: str
    incident: KeptIncident


def keep(place: str, incident: KeptIncident, *, write: bool = True) -> KeepResult:
    """Never raises: the verdict is printed whatever happens to the store. `write`: False only looks up."""
    try:
        return _keep(place, incident, write=write)
    except StoreError as error:
        lost = "the verdict is not stored" if write else "whether it was seen before is unknown"
        return KeepResult(problem=f"{error} ({lost})")


def _keep(place: str, incident: KeptIncident, *, write: bool) -> KeepResult:
    try:
        from forkpoint.history.queries import (  # noqa: PLC0415 - an extra, and 0.3 s to import
            count_seen,
            describe_seen,
            seen_before,
        )
        from forkpoint.history.store import open_store  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise StoreError(f"--store needs {error.name}: {_MISSING}") from error
    store = open_store(place)
    try:
        if write:
            store.write(incident)
        if incident.fingerprint is None:
            return KeepResult()
        earlier = seen_before(store, incident.fingerprint, incident.id)
        return KeepResult(
            describe_seen(earlier, count_seen(store, incident.fingerprint, incident.id) if earlier else 0)
        )
    finally:
        store.close()


def main() -> None:
    task = msgspec.convert(json.load(sys.stdin), KeepTask)
    kept = keep(task.store, task.incident)
    if kept.problem:
        sys.stderr.write(f"forkpoint: {kept.problem}\n")


if __name__ == "__main__":
    main()
