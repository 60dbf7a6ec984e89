"""Reads the dumps of a capture again, entry by entry, for exports: a capture keeps only what the stages need."""

import io
from collections.abc import Iterator, Sequence
from typing import cast

from forkpoint.errors import InputError
from forkpoint.ingest import Progress, flight_recorder
from forkpoint.ingest.files import SNIFF, STDIN, find_files, is_archive, open_file, shown
from forkpoint.ingest.flight_recorder import DumpColumns
from forkpoint.ingest.naming import claim_rank
from forkpoint.model.capture import Capture
from forkpoint.model.trace import RankTrace


def read_dumps_again(
    paths: Sequence[str], capture: Capture, progress: Progress | None = None
) -> Iterator[tuple[RankTrace, DumpColumns]]:
    """One dump at a time, of the ranks that the capture has. What cannot be read again (a pipe, a file that has gone or
    has changed) is missing.
    """
    wanted: dict[str, RankTrace] = {trace.file: trace for trace in capture.traces}
    files = find_files([path for path in paths if path != STDIN])
    for done, path in enumerate(files):
        if progress:
            progress(done, len(files), shown(path))
        for name, data in _dumps_in(path, wanted):
            trace, columns = wanted[name], _decode(data, name)
            if columns and len(columns.group) == trace.entries and claim_rank(columns, name).rank == trace.rank:
                del wanted[name]
                yield trace, columns


def _dumps_in(path: str, wanted: dict[str, RankTrace]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of what may be a wanted dump."""
    try:
        with open_file(path) as stream:
            if (name := shown(path)) in wanted:
                yield name, stream.read(flight_recorder.MAX_BYTES + 1)
            elif is_archive(stream.peek(SNIFF)):
                yield from _dumps_in_archive(stream, name, wanted)
    except OSError:
        return


def _dumps_in_archive(
    stream: "io.BufferedReader[io.FileIO]", path: str, wanted: dict[str, RankTrace]
) -> Iterator[tuple[str, bytes]]:
    from forkpoint.ingest.logs.archives import ArchiveMember, open_members  # noqa: PLC0415 - slow to import

    for member in open_members(stream, path):
        if isinstance(member, ArchiveMember) and member.name in wanted:
            inside = io.BufferedReader(cast("io.FileIO", member.stream), SNIFF)
            yield member.name, inside.read(flight_recorder.MAX_BYTES + 1)


def _decode(data: bytes, name: str) -> DumpColumns | None:
    try:
        return flight_recorder.decode(data, name)
    except InputError:
        return None
