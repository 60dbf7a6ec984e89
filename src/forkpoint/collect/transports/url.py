"""`s3://`, `gs://`, `hf://`, `memory://`: whatever fsspec has a driver for."""

from datetime import datetime
from typing import Any, BinaryIO, cast

from forkpoint.collect.keep import EvidenceFolder, Original
from forkpoint.collect.manifest import CollectNote, Copied
from forkpoint.errors import UsageError

_LABEL = "url"
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


def copy_url(place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """All evidence below the address. Raises UsageError where fsspec or its driver is not installed."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - for such places alone  # pyright: ignore[reportMissingTypeStubs] - it has none
    except ModuleNotFoundError as error:
        raise UsageError(f"{place}: needs fsspec: pip install 'forkpoint[collect]'") from error
    try:
        system, root = url_to_fs(place)
        found: dict[str, dict[str, Any]] = system.find(root, detail=True)
    except ImportError as error:
        raise UsageError(f"{place}: {error}") from error
    except Exception as error:  # noqa: BLE001 - every driver has exceptions of its own, and the other places go on
        return [CollectNote(place, f"cannot be listed ({type(error).__name__}: {error})")]
    if not found:
        return [CollectNote(place, "nothing there")]
    got: list[Copied | CollectNote] = []
    for name, facts in sorted(found.items(), key=lambda item: (item[1].get("size") or 0, item[0])):
        original = Original(place, _LABEL, name, _number(facts.get("size")), _time(facts))
        try:
            with system.open(name, "rb") as stream:
                done = folder.keep(original, cast("BinaryIO", stream))
        except Exception as error:  # noqa: BLE001 - as above
            done = f"cannot be read ({type(error).__name__}: {error})"
        if isinstance(done, str):
            got.append(CollectNote(place, f"{name}: {done}"))
        elif done is not None:
            got.append(done)
    return got


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _time(facts: dict[str, Any]) -> float | None:
    for name in _TIMES:
        value = facts.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None
