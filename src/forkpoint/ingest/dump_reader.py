"""Dumps, one after another -> packed records: by the compiled reader where it is installed, else in Python."""

import io
from functools import lru_cache

import numpy as np

from forkpoint.ingest import flight_recorder
from forkpoint.ingest.flight_recorder.native import Claimable, NativePacker
from forkpoint.ingest.flight_recorder.summary import summarise
from forkpoint.ingest.naming import FileNames, RankClaim, RankHints, claim_by_hints, claim_rank
from forkpoint.model.tables import SharedTables

Dump = bytes | io.BufferedIOBase
"""As it was read, or where it is to be read."""

_KEPT_MEMBERS = 256
"""Cached groups: the world is in every dump, and a node's ranks share a few more."""


class DumpReader:
    def __init__(self, tables: SharedTables, names: FileNames) -> None:
        self._tables = tables
        self._names = names
        self._native = NativePacker.if_installed()
        self._belonging = lru_cache(_KEPT_MEMBERS)(tables.belonging)
        # For one dump after another, and a byte more than any may have. What no dump has touched takes no memory.
        self._room = np.empty(flight_recorder.MAX_BYTES + 1, np.uint8).data

    def read(self, path: str, dump: Dump) -> tuple[RankClaim, bytes]:
        """Whose dump it is, and its record: empty where nothing says whose. Raises InputError."""
        data = dump if isinstance(dump, bytes) else self._room[: dump.readinto(self._room)]
        read = self._read_natively(path, data) if self._native else None
        return read or self._read_in_python(path, bytes(data))

    def _read_natively(self, path: str, data: bytes | memoryview) -> tuple[RankClaim, bytes] | None:
        """None: the dump is for the Python reader."""
        assert self._native is not None  # the caller has looked
        claimable = self._native.decode(data)
        if claimable is None:
            return None
        self._tables.add_stream(self._native.new_tables())
        claim = claim_by_hints(self._hints(claimable), path, self._names)
        if claim.rank is None:
            return claim, b""
        record = self._native.summarise(claim.rank)
        self._tables.add_stream(self._native.new_tables())
        return None if record is None else (claim, record)

    def _hints(self, claimable: Claimable) -> RankHints:
        declared = tuple(self._belonging(key) for key in claimable.declared)
        return RankHints(claimable.stated, claimable.in_messages, declared)

    def _read_in_python(self, path: str, data: bytes) -> tuple[RankClaim, bytes]:
        columns = flight_recorder.decode(data, path)
        for group in columns.header.groups:
            if group.ranks:  # the compiled reader tells them all, to have the rank claimed by them
                self._tables.members_key(group.ranks)
        if columns.header.unnamed:
            self._tables.members_key(columns.header.unnamed)
        claim = claim_rank(columns, path, self._names)
        if claim.rank is None:
            return claim, b""
        return claim, summarise(columns, claim.rank, self._tables)
