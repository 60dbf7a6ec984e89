"""Receives a tar from another machine: only plain files are kept, under safe names."""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from forkpoint.collect.call import CallFailed, running
from forkpoint.collect.keep import EvidenceFolder, Original
from forkpoint.collect.manifest import CollectNote, Copied
from forkpoint.collect.transports import Remote, Target
from forkpoint.ingest.logs.archives import SmallHeader
from forkpoint.ingest.text import clean

_BLOCK = 1 << 18
_BROKEN = (OSError, EOFError, tarfile.TarError, ValueError)


@dataclass(slots=True)
class _Odd:
    """Members of a tar other than plain files."""

    others: int = 0


def copy_remote(remote: Remote, target: Target, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """Copies everything one machine has; notes what it could not send."""
    place = f"{remote.place} {target.label}" if target.label not in remote.place else remote.place
    got = _receive(remote, target, place, folder)
    if target.log_argv:
        got += _log(target, target.log_argv, place, folder)
    return got


def _receive(remote: Remote, target: Target, place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    got: list[Copied | CollectNote] = []
    with running(target.argv, remote.path.encode() + b"\n", folder.meter.seconds_left) as tool:
        if tool.failed is None:
            got += _unpacked(tool.answer, target.label, place, folder)
    if isinstance(tool.failed, CallFailed):
        got.append(CollectNote(place, tool.failed.why))
    elif not got:
        got.append(CollectNote(place, "nothing found there"))
    return got


def _unpacked(stream: BinaryIO, label: str, place: str, folder: EvidenceFolder) -> Iterator[Copied | CollectNote]:
    odd = _Odd()
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK, tarinfo=SmallHeader) as archive:
            for info in archive:
                archive.members = []  # pyright: ignore[reportAttributeAccessIssue] - it would keep every header
                opened = archive.extractfile(info) if info.isreg() else None
                if opened is None:
                    odd.others += not info.isdir()
                    continue
                name = str(PurePosixPath("/", info.name))
                done = folder.keep(Original(place, label, name, info.size, float(info.mtime)), cast("BinaryIO", opened))
                if isinstance(done, str):
                    yield CollectNote(place, f"{clean(name)}: {done}")
                    break
                if done is not None:
                    yield done
                    if done.cut:  # no room is left, or nothing more comes: the rest is not waited for
                        break
    except tarfile.ReadError as error:
        if "empty file" not in str(error):  # it found nothing: its exit code says why, or there is nothing
            yield CollectNote(place, clean(f"stopped sending: {error}"))
    except _BROKEN as error:
        yield CollectNote(place, clean(f"stopped sending: {error}"))
    if odd.others:
        yield CollectNote(place, f"{odd.others} links, devices or pipes were sent and not kept")


def _log(target: Target, argv: tuple[str, ...], place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    with running(argv, b"", folder.meter.seconds_left) as tool:
        done = None
        if tool.failed is None:
            done = folder.keep(Original(place, target.label, f"/{target.label}.log", None, None), tool.answer)
    got: list[Copied | CollectNote] = [done] if isinstance(done, Copied) else []
    if isinstance(done, str):
        got.append(CollectNote(place, done))
    return [*got, CollectNote(place, tool.failed.why)] if tool.failed else got
