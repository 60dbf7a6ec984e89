"""Incidents drawn, and pictures read back as the page reads them."""

import json
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cases import examine_case
from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.judge.verdict import detect, judge
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.picture import GroupPicture, Picture
from forkpoint.model.verdict import Verdict
from forkpoint.parts import Parts
from forkpoint.report.pictures import draw

TYPES = {"u8": "<u1", "i16": "<i2", "i32": "<i4", "u32": "<u4", "f64": "<f8"}


@dataclass(frozen=True)
class Drawn:
    incident: Incident
    verdict: Verdict
    picture: Picture


@dataclass(frozen=True)
class Payload:
    header: dict[str, Any]
    sections: dict[str, np.ndarray]


@cache
def drawn_case(number: str) -> Drawn:
    found = examine_case(number)
    return Drawn(found.incident, found.verdict, draw(found.incident, found.verdict))


def drawn(capture: Capture) -> Drawn:
    timeline = align(capture)
    incident = Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline)))
    parts = Parts()
    verdict = judge(incident, detect(incident, parts), parts)
    return Drawn(incident, verdict, draw(incident, verdict))


def unpack(payload: bytes) -> Payload:
    raw = zlib.decompress(payload)
    (length,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + length])
    body = raw[4 + length :]
    return Payload(
        header,
        {
            s["name"]: np.frombuffer(body, TYPES[s["type"]], count=s["count"], offset=s["at"])
            for s in header["sections"]
        },
    )


def cells(group: GroupPicture) -> dict[int, list[int]]:
    """By rank the codes of all its columns."""
    heat = group.heat
    return {
        rank: expand(heat.row_start, heat.run_length, heat.run_code, row)
        for rank, row in zip(group.ranks.tolist(), heat.row_of.tolist(), strict=True)
    }


def expand(row_start: np.ndarray, run_length: np.ndarray, run_code: np.ndarray, row: int) -> list[int]:
    runs = slice(row_start[row], row_start[row + 1])
    return np.repeat(run_code[runs], run_length[runs]).tolist()
