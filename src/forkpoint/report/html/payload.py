"""Picture -> bytes, schema `forkpoint.picture/1`: a JSON header and columns of numbers, deflated.

u32 length of the header, the header (padded with spaces), then sections; all begin at multiples of eight, counted from
the end of the header, and are little-endian. 64-bit numbers travel as doubles, which JavaScript reads at once.
"""

import json
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.picture import GroupPicture, Lane, LaneCell, LastArrivals, Picture, Quote
from forkpoint.report.html.bounds import MAX_TEXT, bounded
from forkpoint.report.html.ranges import as_ranges
from forkpoint.report.json_report import Json

SCHEMA = "forkpoint.picture/1"
_ALIGN = 8
_LENGTH = struct.Struct("<I")
_TYPES = {"u8": "<u1", "i16": "<i2", "i32": "<i4", "u32": "<u4", "f64": "<f8"}

Column = NDArray[np.generic]


def encode(picture: Picture) -> bytes:
    sections: list[Json] = []
    body = bytearray()
    for name, kind, column in _columns(picture):
        sections.append({"name": name, "type": kind, "at": len(body), "count": column.size})
        body += np.ascontiguousarray(column).astype(_TYPES[kind]).tobytes()
        body += bytes(-len(body) % _ALIGN)
    header = json.dumps(_header(picture, sections), separators=(",", ":")).encode("ascii")
    header += b" " * (-(len(header) + _LENGTH.size) % _ALIGN)
    packer = zlib.compressobj(9)
    return packer.compress(_LENGTH.pack(len(header)) + header) + packer.compress(body) + packer.flush()


def _header(picture: Picture, sections: list[Json]) -> Json:
    return {
        "schema": SCHEMA,
        "ranks": len(picture.ranks),
        "hosts": [bounded(host) for host in picture.hosts],
        "axes": [[bounded(axis.name), axis.size] for axis in picture.axes],
        "ops": [[bounded(op.name), op.letters] for op in picture.ops],
        "groups": [_group(group) for group in picture.groups],
        "groups_left_out": picture.groups_left_out,
        "lanes": [_lane(lane) for lane in picture.lanes],
        "sources": [_quote(quote) for quote in picture.quotes],
        "arrivals": [_arrivals(row) for row in picture.arrivals],
        "sections": sections,
    }


def _columns(picture: Picture) -> Iterator[tuple[str, str, Column]]:
    yield "rank", "i32", picture.ranks
    yield "state", "u8", picture.state
    yield "suspect", "u8", picture.suspect
    yield "cohort", "i16", picture.cohort
    yield "host", "i32", picture.host
    yield "local", "i16", picture.local
    yield "position", "i32", picture.position
    for number, group in enumerate(picture.groups):
        yield f"g{number}.ranks", "i32", group.ranks
        yield f"g{number}.completed", "f64", group.completed
        yield f"g{number}.issued", "f64", group.issued
        yield f"g{number}.row_of", "i32", group.heat.row_of
        yield f"g{number}.row_start", "i32", group.heat.row_start
        yield f"g{number}.run_length", "u32", group.heat.run_length
        yield f"g{number}.run_code", "u8", group.heat.run_code
        yield f"g{number}.op", "u8", group.heat.op


def _group(group: GroupPicture) -> Json:
    return {
        "name": bounded(group.name),
        "desc": bounded(group.desc),
        "kind": "p2p" if group.is_channel else "collective",
        "members": len(group.ranks),
        "first_seq": group.first_seq,
        "last_seq": group.last_seq,
        "divergence": group.is_divergence,
    }


def _lane(lane: Lane) -> Json:
    ranks = as_ranges(lane.ranks)
    return {
        "cohort": lane.cohort,
        "role": lane.role,
        "ranks": {"count": ranks.count, "ranges": ranks.text},
        "suspect": lane.suspect,
        "rank": lane.rank,
        "cells": [_cell(cell) for cell in lane.cells],
    }


def _cell(cell: LaneCell) -> Json:
    return {
        "seq": cell.seq,
        "op": None if cell.op is None else bounded(cell.op),
        "code": cell.letters,
        "sizes": bounded(cell.sizes),
        "state": int(cell.state),
        "odd": cell.odd,
        "note": bounded(cell.note),
    }


def _quote(quote: Quote) -> Json:
    return {
        "file": bounded(quote.file),
        "first": quote.first,
        "lines": [bounded(line, MAX_TEXT) for line in quote.lines],
        "marked": quote.marked,
        "condition": quote.condition,
        "frame": None if quote.frame is None else bounded(quote.frame),
        "site": quote.site,
    }


def _arrivals(row: LastArrivals) -> Json:
    return {
        "group": bounded(row.group),
        "desc": bounded(row.desc),
        "host": None if row.host is None else bounded(row.host),
        "compared": row.compared,
        "site": None if row.site is None else bounded(row.site),
        "met": row.met,
        "last": [[rank, times, round(late_ms, 1)] for rank, times, late_ms in row.last],
        "odd": row.odd,
    }
