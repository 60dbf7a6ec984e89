"""Markdown for tickets and chat, read back by a Markdown parser."""

import re
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from markdown_it import MarkdownIt
from markdown_it.token import Token

import verdicts
from forkpoint.model.incident import Cohort, Role
from forkpoint.model.verdict import Fix, Verdict
from forkpoint.report.markdown import MAX_LINES, render_markdown
from looping import for_each
from report.hostile import STRINGS, hostile

PATCH = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-if rank == 0:\n+if True:\n"
ACTS = re.compile(r"@|://|www\.|#\d|GH-|[<>|`\[\]*_~]|[^\x20-\x7e]")
"""What GitHub or Slack could take for more than text."""


def tokens(document: str) -> list[Token]:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(document)


def inside(document: str) -> Iterator[Token]:
    for token in tokens(document):
        yield from token.children or ()


def kinds(document: str) -> list[str]:
    return [token.type for token in [*tokens(document), *inside(document)]]


def with_fixes(*fixes: Fix) -> Verdict:
    return replace(verdicts.FOUND, findings=(replace(verdicts.FINDING, fixes=fixes),))


def test_the_report_says_who_what_where_and_what_to_do() -> None:
    assert render_markdown(verdicts.FOUND).split("\n") == [
        "# forkpoint: divergent-path",
        "",
        ("**Rank 0 ran `compute()` at `train.py:15`, which ranks 1-3 skipped; `is_main_process()` was true on it.**"),
        "",
        (
            "confidence 0.93, action **fix-code**, symptom watchdog-timeout, suspect: **rank 0** of 4"
            "; replay: had rank 0 left out its call at `default_pg` seq 16, all 4 ranks would have gone on"
        ),
        "",
        "**What**: `default_pg` (group 0, 4 ranks), collective seq 16",
        "",
        "| ranks | role | op |",
        "|---|---|---|",
        "| 0 (suspect) | elsewhere | `all_reduce [2] Float (entering)` |",
        "| 1-3 | waiting | `all_reduce [71178] Float (scheduled)` |",
        "",
        "**Where**",
        "",
        "- `train.py:15` in `log_progress`: `is_main_process()`, true on rank 0 only",
        "",
        "**Fix**: Call `metric.compute()` on every rank; only the logging belongs under the condition.",
        "",
        "**Probe** at `train.py:15`: print the rank before the call",
        "",
        "```diff",
        "--- a",
        "+++ b",
        "```",
        "",
        "**Evidence**",
        "",
        "- E1 rank 0, `nccl_trace_rank_0` entry 15: `all_reduce [2]` Float was issued from `metrics.py:15`",
        "- E2 rank 1, `log_rank_1.txt` line 15: watchdog: ALLREDUCE seq 16 of 71178 elements ran 20091 ms",
        "",
        "**Coverage**: 4 ranks: 4 dumps, 4 logs, 4 stacks; rank 2: cut after 12 entries",
        "",
        "**Next**",
        "",
        "- `forkpoint diagnose DIR --source SRC`",
        "",
    ]


def test_a_healthy_job_gets_no_suspect_and_no_order() -> None:
    assert render_markdown(verdicts.HEALTHY).split("\n") == [
        "# forkpoint: healthy",
        "",
        "**All 4 ranks agree to the last recorded op.**",
        "",
        "confidence 0.90, action **none**, symptom none",
        "",
        "**Coverage**: 4 ranks: 4 dumps, 0 logs, 0 stacks",
        "",
    ]


def test_an_inconclusive_verdict_accuses_nobody_and_says_what_is_next() -> None:
    text = render_markdown(verdicts.INCONCLUSIVE)

    assert "no rank can be singled out" in text
    assert "- `TORCH_FR_BUFFER_SIZE=2000`" in text


def test_a_patch_can_be_copied_out_as_it_is() -> None:
    indented = PATCH.replace("+if True:", "+\tif True:")

    (block,) = [t for t in tokens(render_markdown(with_fixes(Fix("do it", indented)))) if t.content.endswith("True:\n")]

    assert (block.type, block.info, block.content) == ("fence", "diff", indented)


def test_a_patch_that_holds_a_fence_stays_inside_its_own() -> None:
    patch = f"{PATCH}+```\n+`````\n```\n# out\n"

    fences = [t.content for t in tokens(render_markdown(with_fixes(Fix("do it", patch)))) if t.type == "fence"]

    assert patch in fences


def test_a_patch_that_does_not_fit_is_counted_and_left_to_json() -> None:
    text = render_markdown(with_fixes(Fix("do it", PATCH * 20), Fix("or this", PATCH)))

    assert "**Fix**: do it (its patch has 100 lines: --json)" in text
    assert PATCH in text


@for_each("ranks", [8, 1000, 100_000])
def test_any_job_fits_a_page_and_what_does_not_fit_is_counted(ranks: int) -> None:
    text = render_markdown(verdicts.crowded(ranks))

    assert text.count("\n") <= MAX_LINES
    assert len(text) < 20_000
    assert "| 2 more cohorts | | |" in text
    assert "- 994 more: --json" in text


@for_each("string", STRINGS, ids=lambda s: ascii(s[:20]))
def test_a_hostile_string_stays_text(string: str) -> None:
    document = render_markdown(hostile(string))

    found = kinds(document)
    assert found.count("heading_open") == found.count("table_open") == 1
    assert found.count("tr_open") == 2
    assert found.count("bullet_list_open") == 3
    assert not {"html_block", "html_inline", "link_open", "image", "ordered_list_open", "hr", "code_block"} & {*found}
    assert [token.content for token in inside(document) if token.type == "text" and ACTS.search(token.content)] == []
    assert len(document) < 60_000


@given(verdicts.VERDICTS)
def test_any_verdict_is_one_page_of_text(verdict: Verdict) -> None:
    document = render_markdown(verdict)

    found = kinds(document)
    assert document.count("\n") <= MAX_LINES
    assert found.count("heading_open") == 1
    assert not {"html_block", "html_inline", "link_open", "image"} & {*found}
    assert [token.content for token in inside(document) if token.type == "text" and ACTS.search(token.content)] == []
    assert all(c.isprintable() or c in "\n\t" for c in document)


def test_a_bar_in_an_op_does_not_end_its_cell() -> None:
    cohorts = (Cohort((0,), Role.WAITING, "a|b\\|c"),)

    rows = render_markdown(replace(verdicts.FOUND, divergence=replace(verdicts.DIVERGENCE, cohorts=cohorts)))

    assert "| 0 (suspect) | waiting | `a¦b\\¦c` |" in rows
