"""A bomb is known while it is read, by a stretch that swells; logs that pack well are not."""

import gzip
import io
import random
import tarfile
import zipfile

from forkpoint.evidence.archives import ArchiveMember, UnpackBudget, open_members
from forkpoint.model.capture import Problem
from looping import for_each

SMALL = UnpackBudget(ratio=100, ratio_from=1 << 20, swelling=1 << 24, unbroken=1 << 22)
NOISE = random.Random(7).randbytes(1 << 20).hex().encode() + b"\n"
"""Packs two to one: with it no archive as a whole swells."""
SAME = b"rank 3 waits for the others\n"


def unpacked(data: bytes) -> tuple[int, list[str]]:
    """How many bytes came out, and what was said."""
    size, said = 0, list[str]()
    for found in open_members(io.BytesIO(data), "x.gz", SMALL):
        if isinstance(found, Problem):
            said.append(found.text)
        elif isinstance(found, ArchiveMember):
            while piece := found.stream.read(1 << 16):
                size += len(piece)
    return size, said


def gzipped(stretch: bytes) -> bytes:
    return b"".join(gzip.compress(part) for part in (NOISE, stretch, NOISE))


def tarred(stretch: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for number, part in enumerate((NOISE, stretch, NOISE)):
            info = tarfile.TarInfo(f"{number}.log")
            info.size = len(part)
            archive.addfile(info, io.BytesIO(part))
    return data.getvalue()


def zipped(stretch: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, part in enumerate((NOISE, stretch, NOISE)):
            archive.writestr(f"{number}.log", part)
    return data.getvalue()


@for_each("pack", [gzipped, tarred, zipped])
def test_a_stretch_without_a_lines_end_that_swells_is_stopped_inside_an_archive_that_does_not(pack) -> None:
    size, said = unpacked(pack(b"x" * (1 << 26)))

    assert size < 48 << 20
    assert any("expands more than 100 times" in text for text in said)


@for_each(("pack", "lines"), [(tarred, 1 << 17), (gzipped, 1 << 19), (zipped, 1 << 17)], one_in=3)
def test_lines_that_repeat_are_read_for_longer_and_stopped_where_they_go_on_and_on(pack, lines) -> None:
    short, long = SAME * 10 + b"x" * 258 * 8, b"y" * 257 + b"\n"

    assert unpacked(pack(short * 2000))[1] == []
    assert any("expands more than" in text for text in unpacked(pack(long * lines))[1])


@for_each("pack", [gzipped, tarred, zipped])
def test_a_long_log_that_packs_well_is_whole(pack) -> None:
    log = b"".join(
        b"step %d done, loss as before, nothing to tell of the others in this line\n" % n for n in range(200_000)
    )

    size, said = unpacked(pack(log))

    assert said == []
    assert size == 2 * len(NOISE) + len(log)
