"""One file that opens from disk: what is in it is what was found, and no string of input can act in it."""

import base64
import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import verdicts
from forkpoint.model.picture import Axis, CellState, Lane, LaneCell, OpName, Picture, Quote
from forkpoint.model.verdict import Fix, Probe, Verdict
from forkpoint.report.json_report import render_json
from forkpoint.report.page import Page, read_page, render_html
from forkpoint.report.page_data import MAX_RANGES, as_ranges, bounded, encode
from forkpoint.report.pictures import groups
from looping import for_each
from pictures.drawn import drawn, drawn_case, expand, unpack
from small_jobs import SmallJob

TINY = Page(
    '<meta http-equiv="Content-Security-Policy" content="@@CSP@@"><title>@@TITLE@@</title><style>@@STYLE@@</style>'
    '<script type="application/json" id="verdict">@@VERDICT@@</script>'
    '<script type="application/octet-stream" id="picture">@@PICTURE@@</script><script>@@SCRIPT@@</script>',
    "b{}",
    "draw()",
)
ADDRESS = re.compile(r"(?:src|href|action)\s*=\s*[\"']?\w+:(?<!data:)|url\((?!['\"]?data:)|@import|\w+://")
NAMESPACE = "http://www.w3.org/2000/svg"
"""A name that browsers know, not a place they ask."""
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>&lt;&amp;\"'`",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202eevil\u2066\u200b",
    "\u2028\u2029\x00\x7f\x85",
    "\udcff\ud800",
    "@@SCRIPT@@",
    "A" * 1_000_000,
]


def verdict_in(html: str) -> dict[str, Any]:
    found = re.search(r'id="verdict">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


def picture_in(html: str) -> bytes:
    found = re.search(r'id="picture">(.*?)</script>', html, re.DOTALL)
    assert found
    return base64.b64decode(found[1])


def assert_inert(html: str, page: Page = TINY) -> None:
    """The elements are the page's own, and nothing but its own text is outside ASCII."""
    assert html.lower().count("</script") == page.html.lower().count("</script")
    assert html.lower().count("<!--") == page.html.count("<!--")
    assert re.search(r"[^\n\x20-\x7e]", html) is None


def hostile_picture(text: str) -> Picture:
    job = SmallJob(2)
    job.op()
    picture = drawn(job.capture()).picture
    cell = LaneCell(1, text, "XX", text, CellState.ISSUED, odd=True, note=text)
    return replace(
        picture,
        hosts=(text,),
        axes=(Axis(text, 2),),
        ops=(OpName(text, groups.letters_of(text)),),
        groups=tuple(replace(group, name=text, desc=text) for group in picture.groups),
        lanes=(Lane(0, "waiting", (0, 1), suspect=True, rank=0, cells=(cell,)),),
        quotes=(Quote(text, 1, (text,), 1, 1, text, 0),),
    )


@for_each("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_a_hostile_string_in_any_field_stays_data(text: str) -> None:
    hostile = replace(
        verdicts.FOUND,
        summary=text,
        next=(text,),
        coverage=replace(verdicts.FOUND.coverage, notes=(text,)),
        picture=hostile_picture(text),
    )

    html = render_html(hostile, TINY)

    assert_inert(html)
    assert len(html) < 40_000
    shown = text.encode("utf-8", "backslashreplace").decode()
    assert verdict_in(html)["next"][0].startswith(shown[:500])
    header = unpack(picture_in(html)).header
    for place in (
        header["hosts"][0],
        header["axes"][0][0],
        header["ops"][0][0],
        header["groups"][0]["desc"],
        header["lanes"][0]["cells"][0]["note"],
        header["sources"][0]["lines"][0],
    ):
        assert place.startswith(shown[:500])
        assert len(place) < 600


@given(verdicts.VERDICTS)
def test_no_verdict_at_all_can_act(verdict: Verdict) -> None:
    assert_inert(render_html(verdict, TINY))


@given(st.text(), st.integers(1, 40))
def test_a_bounded_string_is_its_beginning_or_says_how_long_it_was(text: str, limit: int) -> None:
    shown = bounded(text, limit)

    shown.encode()
    assert shown == text or len(text) > limit or any("\ud800" <= c <= "\udfff" for c in text)
    if len(text) > limit:
        assert shown.endswith(f"... ({len(text)} characters)")


def test_the_document_is_that_of_json_with_rank_lists_as_ranges() -> None:
    document = verdict_in(render_html(verdicts.FOUND, TINY))
    expected = json.loads(render_json(verdicts.FOUND))

    assert document.pop("left_out") == {"patch": 1}
    assert document["suspects"] == {"count": 1, "ranges": "0"}
    assert document["divergence"]["group"]["ranks"] == {"count": 4, "ranges": "0-3"}
    assert document["divergence"]["cohorts"][0]["ranks"] == {"count": 3, "ranges": "1-3"}
    assert document["evidence"] == expected["evidence"]
    assert list(document) == list(expected)


def test_long_lists_are_cut_and_counted() -> None:
    divergence = replace(verdicts.DIVERGENCE, cohorts=verdicts.DIVERGENCE.cohorts * 50)

    document = verdict_in(render_html(replace(verdicts.FOUND, divergence=divergence), TINY))

    assert len(document["divergence"]["cohorts"]) == 64
    assert document["left_out"] == {"cohorts": 36, "patch": 1}


def test_sides_of_a_hypothesis_are_ranges_and_its_lists_are_cut_and_counted_together() -> None:
    """A job of 10,000 ranks may part in halves: as lists, those would outweigh the whole page."""
    long = replace(verdicts.STALLED, sides=(tuple(range(0, 10_000, 2)), (1,)), steps=("then",) * 50, lacks=("it",) * 41)

    document = verdict_in(render_html(replace(verdicts.FOUND, hypotheses=(verdicts.DECIDED, long, long)), TINY))

    first, second, _ = document["hypotheses"]
    assert first["sides"] is None
    assert first["suspects"] == {"count": 1, "ranges": "0"}
    assert second["sides"] == [{"count": 5000, "ranges": "0-9998/2"}, {"count": 1, "ranges": "1"}]
    assert len(second["steps"]) == 40
    assert document["left_out"] == {"steps": 20, "lacks": 2, "patch": 1}


def test_patches_hold_source_and_are_in_the_page_only_where_source_may_be() -> None:
    finding = replace(verdicts.FINDING, probes=(Probe("try", "a.py", "+ x"),), fixes=(Fix("do", "+ y"), Fix("or")))
    verdict = replace(verdicts.FOUND, findings=(finding,), picture=hostile_picture("x"))
    embedded = replace(verdict, picture=replace(hostile_picture("x"), embeds_source=True))

    without, with_them = (verdict_in(render_html(v, TINY)) for v in (verdict, embedded))

    assert [item["patch"] for item in (*without["probes"], *without["fixes"])] == [None, None, None]
    assert without["left_out"] == {"patch": 2}
    assert [item["patch"] for item in (*with_them["probes"], *with_them["fixes"])] == ["+ x", "+ y", None]
    assert with_them["left_out"] == {}


@for_each(
    ("ranks", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([3, 1, 2, 2], "1-3"),
        ([0, 1, 7, 9], "0-1,7,9"),
        ([0, 8, 16, 24], "0-24/8"),
        ([0, 1, 2, 10, 12, 14, 15, 16], "0-2,10-14/2,15-16"),
    ],
)
def test_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    assert as_ranges(ranks)["ranges"] == text


@given(st.sets(st.integers(0, 500)))
def test_ranges_hold_the_ranks_they_were_made_from(ranks: set[int]) -> None:
    found = str(as_ranges(ranks)["ranges"])
    read: set[int] = set()
    for part in found.split(",") if found else ():
        if part == "...":
            assert found.count(",") == MAX_RANGES
            break
        first, last, step = re.fullmatch(r"(\d+)(?:-(\d+)(?:/(\d+))?)?", part).groups()
        read |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    else:
        assert read == ranks
    assert as_ranges(ranks)["count"] == len(ranks)
    assert read <= ranks


@for_each("number", ["0001", "0005", "0021", "0044", "0065"])
def test_the_payload_holds_the_picture(number: str) -> None:
    picture = drawn_case(number).picture

    payload = unpack(encode(picture))

    header, sections = payload.header, payload.sections
    assert header["schema"] == "forkpoint.picture/1"
    assert header["ranks"] == len(picture.ranks)
    assert header["axes"] == [[axis.name, axis.size] for axis in picture.axes]
    for name in ("state", "suspect", "cohort", "host", "local"):
        assert sections[name].tolist() == getattr(picture, name).tolist()
    assert sections["position"].reshape(len(picture.ranks), -1).tolist() == picture.position.tolist()
    for g, group in enumerate(picture.groups):
        told = header["groups"][g]
        assert told["kind"] == ("p2p" if group.is_channel else "collective")
        assert (told["first_seq"], told["last_seq"]) == (group.first_seq, group.last_seq)
        assert sections[f"g{g}.issued"].tolist() == group.issued.tolist()
        assert sections[f"g{g}.op"].tolist() == group.heat.op.tolist()
        runs = (sections[f"g{g}.{name}"] for name in ("row_start", "run_length", "run_code"))
        assert len(expand(*runs, row=0)) == group.last_seq - group.first_seq + 1


def test_each_section_begins_at_a_multiple_of_eight() -> None:
    job = SmallJob(3)
    job.op()

    payload = encode(drawn(job.capture()).picture)

    assert {section["at"] % 8 for section in unpack(payload).header["sections"]} == {0}


def test_a_million_ranks_fit_into_the_types_of_their_columns() -> None:
    job = SmallJob(2)
    job.op()
    picture = drawn(job.capture()).picture
    many = replace(picture, ranks=np.arange(1_000_000, dtype=np.int32))

    assert unpack(encode(many)).sections["rank"][-1] == 999_999


def test_a_verdict_without_a_picture_is_a_page_without_one() -> None:
    assert picture_in(render_html(verdicts.FOUND, TINY)) == b""


def test_the_policy_allows_the_pages_own_script_and_style_alone() -> None:
    html = render_html(verdicts.FOUND, TINY)
    script, style = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in (TINY.script, TINY.style))

    assert (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:; "
        "base-uri 'none'; form-action 'none'" in html
    )


def test_the_page_that_is_shipped_has_every_part_once_and_names_no_address() -> None:
    page = read_page()

    for mark in ("CSP", "TITLE", "STYLE", "SCRIPT", "VERDICT", "PICTURE"):
        assert page.html.count(f"@@{mark}@@") == 1
    assert "</script" not in page.script
    assert "</style" not in page.style
    for text in (page.html, page.style, page.script):
        assert ADDRESS.search(text.replace(NAMESPACE, "")) is None
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) is None
    assert len(page.html.encode()) + len(page.style.encode()) + len(page.script.encode()) < 136_000
    assert len(render_html(verdicts.FOUND)) > len(page.script)
