"""Verdict -> one line for programs that scrape logs.

    VERDICT v1 cause=divergent-path action=fix-code ranks=0,4-7 seq=16 confidence=0.95 headline="Rank 0 ..."

Parse it with `PATTERN`. The headline is a JSON string in ASCII. New fields are only added at the end; a change that could
break a parser makes it `v2`.
"""

import json

from forkpoint.model.verdict import Verdict
from forkpoint.model.world import format_ranks
from forkpoint.report.escape import escape

PATTERN = (
    r"^VERDICT v1 cause=(?P<cause>[a-z-]+) action=(?P<action>[a-z-]+) ranks=(?P<ranks>-|[0-9,-]+(?:\+[0-9]+)?)"
    r" seq=(?P<seq>-|[0-9]+) confidence=(?P<confidence>[01]\.[0-9]{2})"
    r'(?: headline=(?P<headline>"(?:[^"\\]|\\.)*"))?(?: |$)'
)

_MAX_RANGES = 200
"""Some log collectors cut lines at 4 kB; a range of six-digit ranks takes 14 bytes."""


def render_line(verdict: Verdict) -> str:
    """Without a final newline. `-`: no rank, or no seq. `+N` after the ranges: N more ranks."""
    seq = verdict.divergence.seq if verdict.divergence else None
    fields = {
        "cause": verdict.cause,
        "action": verdict.action,
        "ranks": _ranks(verdict.suspects),
        "seq": "-" if seq is None else seq,
        "confidence": f"{verdict.confidence:.2f}",
        "headline": json.dumps(escape(verdict.headline)),
    }
    return " ".join(["VERDICT v1", *(f"{name}={value}" for name, value in fields.items())])


def _ranks(ranks: tuple[int, ...]) -> str:
    ranges = format_ranks(ranks).split(",")
    if len(ranges) <= _MAX_RANGES:
        return ",".join(ranges) or "-"
    shown = ranges[:_MAX_RANGES]
    return f"{','.join(shown)}+{len(ranks) - sum(map(_size, shown))}"


def _size(ranks: str) -> int:
    first, _, last = ranks.partition("-")
    return int(last or first) - int(first) + 1
