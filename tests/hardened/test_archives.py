"""Archives that ask for more than they hold: told, in the time and memory that their size allows."""

import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from forkpoint.errors import HostileInput
from forkpoint.evidence import archives
from forkpoint.evidence.archives import ArchiveMember, open_members
from forkpoint.model.capture import Problem
from forkpoint.traces.dump import decode
from hardened.odd import braces

LOG = b"[rank0]: a line\n"


def opened(data: bytes) -> tuple[dict[str, bytes], list[str]]:
    """What is in an archive, and what is said about it."""
    found, said = {}, []
    for member in open_members(io.BytesIO(data), "a"):
        if isinstance(member, ArchiveMember):
            found[member.name] = member.stream.read()
        else:
            assert isinstance(member, Problem)
            said.append(member.text)
    return found, said


def tar_with(header: tarfile.TarInfo, body: bytes) -> bytes:
    header.size = len(body)
    member = tarfile.TarInfo("rank_0.log")
    member.size = len(LOG)
    blocks = [header.tobuf(tarfile.USTAR_FORMAT), _padded(body), member.tobuf(), _padded(LOG), bytes(1024)]
    return b"".join(blocks)


def _padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % 512)


def pax(body: bytes) -> bytes:
    header = tarfile.TarInfo("pax")
    header.type = tarfile.XHDTYPE
    return tar_with(header, body)


def test_a_pax_header_that_never_says_what_it_counts_is_read_once():
    """Tarfile searches it again from each of its million digits."""
    found, _ = opened(gzip.compress(pax(b"9" * 1_000_000)))

    assert found == {"a/rank_0.log": LOG}


def test_names_and_sizes_in_pax_headers_count():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("ü" * 120 + ".log", "rank_1.log"):
            member = tarfile.TarInfo(name)
            member.size = len(LOG)
            member.pax_headers = {"size": str(len(LOG)), "comment": "x"}
            archive.addfile(member, io.BytesIO(LOG))

    found, said = opened(buffer.getvalue())

    assert found == {"a/" + "ü" * 120 + ".log": LOG, "a/rank_1.log": LOG}
    assert said == []


def test_a_file_with_holes_is_told_and_not_unfolded():
    found, said = opened(pax(b"22 GNU.sparse.major=1\n"))

    assert found == {}
    assert "is a sparse file" in said[0]


def test_a_packed_file_may_not_ask_for_gigabytes_to_unpack(monkeypatch: pytest.MonkeyPatch):
    data = lzma.compress(LOG * 100, preset=6) + bytes(4) + lzma.compress(LOG)
    whole, _ = opened(data)
    monkeypatch.setattr(archives, "_XZ_MEMORY", 1 << 20)

    found, said = opened(data)

    assert whole == {"a": LOG * 101}
    assert found == {"a": b""}
    assert "Memory usage limit" in said[0]


def test_a_zip_that_lists_more_than_it_may_is_not_listed(monkeypatch: pytest.MonkeyPatch):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(50):
            archive.writestr(f"rank_{number}.log", LOG)
    whole, _ = opened(buffer.getvalue())
    monkeypatch.setattr(archives, "_DIRECTORY_AT_MOST", 1000)

    found, said = opened(buffer.getvalue())

    assert len(whole) == 50
    assert found == {}
    assert "its list of files is larger" in said[0]


def test_json_of_empty_objects_is_refused_before_they_are_made(tmp_path: Path):
    data = braces(400_000)
    tracemalloc.start()
    try:
        with pytest.raises(HostileInput, match="more lists and objects"):
            decode(data, "f")
        assert tracemalloc.get_traced_memory()[1] < len(data)
    finally:
        tracemalloc.stop()
