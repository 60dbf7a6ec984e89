"""Reads archives member by member, as streams: nothing is written to disk, and a budget limits what is unpacked."""

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

from msgspec import Struct

from forkpoint.evidence.files import GZIP, XZ, ZIP, ZSTD, PieceStream, is_archive, is_tar
from forkpoint.evidence.text import clean
from forkpoint.evidence.zstd import open_zstd
from forkpoint.model.capture import Problem

_HEAD = 512
_BUFFER = 1 << 18
_DEPTH = 3
_HEADER_AT_MOST = 1 << 20
_DIGITS = 16
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError, ValueError, NotImplementedError)  # fmt: skip


class UnpackBudget(Struct, frozen=True):
    """How much may be unpacked from one archive. Data that is packed twice counts twice."""

    total: int = 1 << 36
    ratio: int = 500
    """Bytes out per byte in, enforced after `ratio_from` bytes. Logs compress well: 20 to 200 is usual."""
    ratio_from: int = 1 << 26
    swelling: int = 1 << 28
    """Bytes beyond that ratio in any one stretch of the archive."""
    unbroken: int = 1 << 24
    """The same without a line end. Lower, since no log or dump looks like that."""
    members: int = 200_000


class ArchiveMember(Struct, frozen=True):
    """One file of an archive. Its stream can be read once, before the next member is requested."""

    name: str
    """The archive's name and the path inside it, without control characters and `..`."""
    stream: BinaryIO


def open_members(stream: BinaryIO, name: str, budget: UnpackBudget | None = None) -> Iterator[ArchiveMember | Problem]:
    """The files in an archive (gz, zst, xz, zip, tar and compressed tar). The format is detected from the content.

    A plain file is its own only member.
    """
    label = clean(name)
    meter = _UnpackMeter(budget or UnpackBudget(), stream)
    outside = cast("io.BufferedReader", io.BufferedReader(_Outside(stream, meter), _BUFFER))
    try:
        if stream.seekable() and not is_archive(outside.peek(_HEAD)[:_HEAD]):
            stream.seek(0)
            yield ArchiveMember(label, stream)
        elif stream.seekable() and outside.peek(_HEAD).startswith(ZIP):
            yield from _zip_members(stream, label, meter)
        else:
            yield from _members(outside, label, meter, depth=0)
    except _BROKEN as error:
        yield Problem(label, clean(f"cannot be unpacked further: {error}"))
    for text in meter.problems:
        yield Problem(label, text)


def _members(
    stream: io.BufferedReader, name: str, meter: "_UnpackMeter", depth: int
) -> Iterator[ArchiveMember | Problem]:
    head = stream.peek(_HEAD)[:_HEAD]
    if head.startswith(ZIP):
        yield Problem(name, "is a zip inside another archive; unpack it first")
    elif is_tar(head) and depth < _DEPTH:
        yield from _tar_members(stream, name, meter, depth)
    elif (unpack := _unpacker(head)) and depth < _DEPTH:
        opened = unpack(stream)
        if isinstance(opened, str):
            yield Problem(name, opened)
        else:
            yield from _members(_metered(opened, meter), name_inside(name), meter, depth + 1)
    else:
        yield ArchiveMember(name, stream)


class _UnpackMeter:
    """Counts packed and unpacked bytes of one archive, at all depths."""

    def __init__(self, budget: UnpackBudget, stream: BinaryIO) -> None:
        self.budget = budget
        self.problems: list[str] = []
        self.out = 0
        self.members = 0
        self.size_in = _size(stream)
        self._swollen = 0
        self._unbroken = 0

    def came_in(self, size: int) -> None:
        """Packed bytes were read. Their allowance does not accumulate, so a bomb anywhere in the archive is noticed while it
        is being unpacked, not afterwards.
        """
        granted = size * self.budget.ratio
        self._swollen = max(-granted, self._swollen - granted)
        self._unbroken = max(-granted, self._unbroken - granted)

    def may(self, piece: bytes) -> bool:
        """Whether these bytes are still within the budget."""
        size = len(piece)
        self.out += size
        self._swollen += size
        self._unbroken = min(0, self._unbroken) if b"\n" in piece else self._unbroken + size
        if self.out > self.budget.total:
            self._stop(
                f"holds more than {self.budget.total >> 20} MiB; the rest was left out. Unpack it to read it all"
            )
            return False
        whole = self.size_in is not None and self.out > max(self.budget.ratio_from, self.size_in * self.budget.ratio)
        if whole or self._swollen > self.budget.swelling or self._unbroken > self.budget.unbroken:
            self._stop(
                f"expands more than {self.budget.ratio} times; the rest was left out. Unpack it yourself if you trust it"
            )
            return False
        return True

    def may_open(self) -> bool:
        self.members += 1
        if self.members > self.budget.members:
            self._stop(f"holds more than {self.budget.members} files; the rest was left out")
            return False
        return True

    def _stop(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


def _size(stream: BinaryIO) -> int | None:
    if not stream.seekable():
        return None
    here = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(here)
    return end


class _Outside(PieceStream):
    """The packed stream. The caller closes the file, not this."""

    def __init__(self, inner: BinaryIO, meter: "_UnpackMeter") -> None:
        self._inner, self._meter = inner, meter

    def read_piece(self, size: int) -> bytes:
        piece = self._inner.read(size)
        self._meter.came_in(len(piece))
        return piece


class _OutsideZip(_Outside):
    """The same with seeking: a zip is read from its end."""

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()


class _Metered(PieceStream):
    """An unpacked stream that ends where the budget is used up, or where the data is damaged."""

    def __init__(self, inner: BinaryIO, meter: _UnpackMeter) -> None:
        self._inner = inner
        self._meter = meter
        self._over = False

    def read_piece(self, size: int) -> bytes:
        if self._over:
            return b""
        try:
            piece = self._inner.read(min(size, _BUFFER))
        except _BROKEN as error:
            self._meter.problems.append(clean(f"is damaged ({error}); the part before that was used"))
            piece = b""
        self._over = not piece or not self._meter.may(piece)
        return b"" if self._over else piece


def _metered(stream: BinaryIO, meter: _UnpackMeter) -> io.BufferedReader:
    return io.BufferedReader(_Metered(stream, meter), _BUFFER)


# --------------------------------------------------------------------------------------------------------- by format


def _unpacker(head: bytes) -> Callable[[BinaryIO], BinaryIO | str] | None:
    if head.startswith(GZIP):
        return _open_gzip
    if head.startswith(XZ):
        return _open_xz
    if head.startswith(ZSTD):
        return open_zstd
    return None


def _open_gzip(stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(fileobj=stream, mode="rb"))


def _open_xz(stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Xz(stream), _BUFFER))


class _Xz(PieceStream):
    """Like lzma.LZMAFile, but with a memory limit: a header of a few bytes can request gigabytes."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self._unpacker = _xz_unpacker()
        self._packed = b""

    def read_piece(self, size: int) -> bytes:
        while True:
            if self._unpacker.eof:
                rest = (self._unpacker.unused_data or self._inner.read(_BUFFER)).lstrip(b"\x00")  # padding
                if not rest:
                    return b""
                self._unpacker, self._packed = _xz_unpacker(), rest
            elif self._unpacker.needs_input and not self._packed:
                self._packed = self._inner.read(_BUFFER)
                if not self._packed:
                    raise EOFError("the file ends early")
            piece = self._unpacker.decompress(self._packed, size)
            self._packed = b""
            if piece:
                return piece


def _xz_unpacker() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


_XZ_MEMORY = 128 << 20
"""Twice what `xz -9` needs."""


def _zip_members(stream: BinaryIO, name: str, meter: _UnpackMeter) -> Iterator[ArchiveMember | Problem]:
    if _directory_size(stream) > _DIRECTORY_AT_MOST:
        meter.problems.append(f"its list of files is larger than {_DIRECTORY_AT_MOST >> 20} MiB; unpack it to read it")
        return
    stream.seek(0)
    with zipfile.ZipFile(cast("BinaryIO", _OutsideZip(stream, meter))) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if not meter.may_open():
                return
            label = _joined(name, info.filename)
            if info.flag_bits & 1:
                yield Problem(label, "is protected with a password")
                continue
            with archive.open(info) as opened:
                yield from _members(_metered(cast("BinaryIO", opened), meter), label, meter, depth=1)


_DIRECTORY_AT_MOST = 16 << 20
_END = b"PK\x05\x06"
_END_SIZE = 22
_LONGEST_COMMENT = 1 << 16
_IN_ZIP64 = (1 << 32) - 1


def _directory_size(stream: BinaryIO) -> int:
    """Size of the list of members at the end of a zip, which zipfile reads in one piece."""
    end = stream.seek(0, io.SEEK_END)
    start = stream.seek(max(0, end - _LONGEST_COMMENT - _END_SIZE))
    tail = stream.read(end - start)
    at = tail.rfind(_END)
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    # Beyond 4 GiB or 65,535 files the true size is in the zip64 record, which comes just before the end record.
    is_elsewhere = size == _IN_ZIP64 or tail[at + 10 : at + 12] == b"\xff\xff"
    return max(size, int.from_bytes(_zip64_size(tail, at), "little")) if is_elsewhere else size


def _zip64_size(tail: bytes, end: int) -> bytes:
    at = tail.rfind(b"PK\x06\x06", 0, end)
    return tail[at + 40 : at + 48] if at >= 0 else b""


class SmallHeader(tarfile.TarInfo):
    """Limits how much a tar header may read from the archive for long names."""

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Replaces tarfile's own, which takes quadratic time and expands sparse files. Global headers are skipped."""
        said = _pax_records(archive.fileobj.read(self._block(self.size))[: self.size])  # type: ignore[attr-defined] - as tarfile does itself
        following = self.fromtarfile(archive)
        if self.type != tarfile.XGLTYPE:
            following.name = said.get("path", following.name)
            size = said.get("size", "")
            if size.isdecimal() and len(size) < _DIGITS:
                following.size = int(size)
                room = self._block(following.size) if following.isreg() else 0  # type: ignore[attr-defined] - as tarfile does itself
                archive.offset = following.offset_data + room  # type: ignore[attr-defined] - as tarfile does itself
            if any(key.startswith("GNU.sparse.") for key in said):
                following.type = tarfile.GNUTYPE_SPARSE
        return following

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        special = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")
        if self.type in special and self.size > _HEADER_AT_MOST:
            raise tarfile.ReadError("a header is too large")
        return super()._proc_member(archive)  # type: ignore[misc] - the one place where headers pass


def _pax_records(data: bytes) -> dict[str, str]:
    """Records of the form `27 path=some/name` and a newline; the number is the length of the whole record."""
    said: dict[str, str] = {}
    at = 0
    while (space := data.find(b" ", at, at + _DIGITS)) > 0 and data[at:space].isdigit():
        end = at + int(data[at:space])
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if end <= space or not equals:
            break
        said[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        at = end
    return said


def _tar_members(stream: BinaryIO, name: str, meter: _UnpackMeter, depth: int) -> Iterator[ArchiveMember | Problem]:
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_BUFFER, tarinfo=SmallHeader) as archive:
        for info in archive:
            if info.issparse() or info.type == tarfile.GNUTYPE_SPARSE:
                meter.problems.append(f"{_joined(name, info.name)}: is a sparse file; unpack it to read it")
                continue
            opened = archive.extractfile(info) if info.isreg() else None
            archive.members = []  # pyrefly: ignore[missing-attribute] - it would keep every header
            if opened is None:
                continue
            if not meter.may_open():
                return
            inner = _metered(cast("BinaryIO", opened), meter)
            yield from _members(inner, _joined(name, info.name), meter, depth + 1)


def _joined(archive: str, path: str) -> str:
    """A label, not a path: it is never used to open anything."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    return clean(f"{archive}/{'/'.join(parts)}")


def name_inside(name: str) -> str:
    """How the names of what is in a packed file begin."""
    name = clean(name)
    for suffix in (".gz", ".tgz", ".zst", ".xz"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
