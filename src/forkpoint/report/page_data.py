"""The data in a page: the verdict's JSON with shortened strings and rank ranges, and the picture as columns of numbers."""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from forkpoint.model.picture import GroupPicture, Lane, LaneCell, LastArrivals, Picture
from forkpoint.model.verdict import Verdict
from forkpoint.report.escape import Json, map_texts, valid_text
from forkpoint.report.json_report import verdict_document

MAX_TEXT = 500
"""Characters of a name, a path, a line of a log."""
MAX_LONG_TEXT = 2000
MAX_PATCH = 20_000


def bounded(text: str, limit: int = MAX_TEXT) -> str:
    r"""Shortens a text and notes its length; lone surrogates (undecodable bytes of a name) become text `\udcff`."""
    short = text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
    return valid_text(short)


def script_json(value: object) -> str:
    """ASCII for a script element: nothing in it can end that element or control a terminal."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&\x7f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# ---------------------------------------------------------------------------------------------------------------------
# Lists of ranks as ranges: `0-6,8,16-128/8`.

MAX_RANGES = 200
"""More would fill the page, and nobody would read them."""


def as_ranges(ranks: Iterable[Json]) -> dict[str, Json]:
    """`a-b/s`: every s-th rank from a to b. Ends in `,...` if there are more than MAX_RANGES."""
    ordered = sorted({rank for rank in ranks if isinstance(rank, int)})
    found = [_write(*run) for run in islice(_steps(ordered), MAX_RANGES + 1)]
    return {"count": len(ordered), "ranges": ",".join([*found[:MAX_RANGES], *(["..."] if found[MAX_RANGES:] else [])])}


def _write(first: int, last: int, step: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"


def _steps(ordered: list[int]) -> Iterator[tuple[int, int, int]]:
    """(first, last, step) of runs with equal steps. Two ranks that are not neighbours are not a run."""
    at = 0
    while at < len(ordered):
        end, step = at, 1
        if at + 1 < len(ordered):
            step = ordered[at + 1] - ordered[at]
            end = at + 1
            while end + 1 < len(ordered) and ordered[end + 1] - ordered[end] == step:
                end += 1
            if step > 1 and end - at < 2:
                end, step = at, 1
        yield ordered[at], ordered[end], step
        at = end + 1


# ---------------------------------------------------------------------------------------------------------------------
# The verdict's JSON in the page: like `--json`, but with rank lists as ranges and shortened strings.
#
# In a job of 10,000 ranks every moment names most of them; as lists these would be larger than the rest of the page.

_RANKS = frozenset({"ranks", "suspects"})
_ITEMS = {"sides": "ranks"}
"""Lists whose items are treated like another key."""
_LIMITS = {
    "patch": MAX_PATCH,
    "summary": MAX_LONG_TEXT,
    "headline": MAX_LONG_TEXT,
    "condition": MAX_LONG_TEXT,
    "why": MAX_LONG_TEXT,
}
_MAX_ITEMS = {
    "evidence": 1000,
    "cohorts": 64,
    "sizes": 16,
    "dtypes": 16,
    "hypotheses": 16,
    "sides": 16,
    "for": 40,
    "against": 40,
    "lacks": 40,
    "steps": 40,
}
_MAX_OTHERS = 200
"""Limit of any other list. The timeline is never longer."""


def render_document(verdict: Verdict) -> str:
    left_out: dict[str, int] = {}
    embeds_source = verdict.picture is not None and verdict.picture.embeds_source
    whole = verdict_document(verdict if embeds_source else _without_patches(verdict))
    document = {name: _for_page(item, name, left_out) for name, item in whole.items()}
    patches = sum(remedy.patch is not None for remedy in (*verdict.probes, *verdict.fixes))
    if patches and not embeds_source:
        left_out["patch"] = patches
    return script_json({**document, "left_out": left_out})


def _without_patches(verdict: Verdict) -> Verdict:
    """Patches contain lines of the user's source."""
    return replace(
        verdict,
        findings=tuple(
            replace(
                finding,
                probes=tuple(structs.replace(probe, patch=None) for probe in finding.probes),
                fixes=tuple(structs.replace(fix, patch=None) for fix in finding.fixes),
            )
            for finding in verdict.findings
        ),
    )


def _for_page(value: Json, key: str, left_out: dict[str, int]) -> Json:
    """`left_out`: by the name of a list, how many items were dropped from all lists of that name."""
    if isinstance(value, str):
        return bounded(value, _LIMITS.get(key, MAX_TEXT))
    if isinstance(value, (list, tuple)) and key in _RANKS:
        return as_ranges(value)
    if isinstance(value, (list, tuple)):
        limit = _MAX_ITEMS.get(key, _MAX_OTHERS)
        if len(value) > limit:
            left_out[key] = left_out.get(key, 0) + len(value) - limit
        return [_for_page(item, _ITEMS.get(key, key), left_out) for item in value[:limit]]
    if isinstance(value, dict):
        return {name: _for_page(item, name, left_out) for name, item in value.items()}
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Picture -> bytes, schema `forkpoint.picture/1`: a JSON header and columns of numbers, compressed.
#
# u32 length of the header, the header (padded with spaces), then sections. Sections are little-endian and begin at multiples
# of eight, counted from the end of the header. 64-bit numbers are stored as doubles, which JavaScript can read directly.

PICTURE_SCHEMA = "forkpoint.picture/1"
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
        "schema": PICTURE_SCHEMA,
        "ranks": len(picture.ranks),
        "hosts": [bounded(host) for host in picture.hosts],
        "axes": [[bounded(axis.name), axis.size] for axis in picture.axes],
        "ops": [[bounded(op.name), op.letters] for op in picture.ops],
        "groups": [_group(group) for group in picture.groups],
        "groups_left_out": picture.groups_left_out,
        "lanes": [_lane(lane) for lane in picture.lanes],
        "sources": [map_texts(msgspec.to_builtins(quote), bounded) for quote in picture.quotes],
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
    return {
        "cohort": lane.cohort,
        "role": lane.role,
        "ranks": as_ranges(lane.ranks),
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


def _arrivals(row: LastArrivals) -> Json:
    late: list[Json] = [[rank, times, round(late_ms, 1)] for rank, times, late_ms in row.last]
    return map_texts({**msgspec.to_builtins(row), "last": late}, bounded)
