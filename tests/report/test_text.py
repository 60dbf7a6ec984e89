import io
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from rich.cells import cell_len
from rich.console import Console

import verdicts
from forkpoint.model.incident import Cohort, Role
from forkpoint.model.op import Frame
from forkpoint.model.picture import Quote
from forkpoint.model.verdict import Fix, Probe, Source, Verdict
from forkpoint.report.snippet import MAX_DIFF_LINES
from forkpoint.report.text import SCREEN_LINES, render_text
from looping import for_each

PATCH = "--- a/train.py\n+++ b/train.py\n@@ -15 +15 @@\n-if is_main_process():\n+if True:\n"


def lines(verdict: Verdict, width: int = 80) -> list[str]:
    return render_text(verdict, width).plain.split("\n")


def section(verdict: Verdict, label: str) -> str:
    return next(line for line in lines(verdict, 200) if line.startswith(label))


def test_the_report_says_who_what_where_and_what_to_do() -> None:
    assert lines(verdicts.FOUND) == [
        "Rank 0 ran `compute()` at train.py:15, which ranks 1-3 skipped;",
        "`is_main_process()` was true on it.",
        "divergent-path  (confidence 0.93, symptom watchdog-timeout)",
        "",
        "who       suspect: rank 0 of 4",
        "what      default_pg (group 0, 4 ranks), collective seq 16",
        "          0  elsewhere  all_reduce [2] Float (entering)",
        "            /home/mlops/trainer/metrics.py:15 compute",
        "            /home/mlops/trainer/train.py:16 log_progress",
        "            /home/mlops/trainer/train.py:37 main",
        "          1-3  waiting  all_reduce [71178] Float (scheduled)",
        "where     train.py:15 log_progress: is_main_process()",
        "          true on rank 0 only",
        "do        fix-code: Call metric.compute() on every rank; only the logging",
        "          belongs under the condition.",
        "probe     print the rank before the call, at train.py:15",
        "replay    had rank 0 left out its call at default_pg seq 16, all 4 ranks would",
        "          have gone on",
        "possibly  host-stall or rank-lost of rank 0 or rank 2",
        "timeline  01:18:07Z rank 0 issued all_reduce [2], default_pg seq 16",
        "          01:18:27Z ranks 1-3 timed out in ALLREDUCE seq 16 after 20.1 s",
        "evidence  E1 rank 0, nccl_trace_rank_0 entry 15: all_reduce [2] Float was issued",
        "          from metrics.py:15",
        "          E2 rank 1, log_rank_1.txt:15: watchdog: ALLREDUCE seq 16 of 71178",
        "          elements ran 20091 ms",
        "coverage  4 ranks: 4 dumps, 4 logs, 4 stacks",
        "          rank 2: cut after 12 entries",
        "next      forkpoint diagnose DIR --source SRC",
        "          --source DIR: the code at train.py:15, and what to change there",
    ]


def test_a_healthy_job_gets_no_suspect_and_no_order() -> None:
    assert lines(verdicts.HEALTHY) == [
        "All 4 ranks agree to the last recorded op.",
        "healthy  (confidence 0.90)",
        "",
        "coverage  4 ranks: 4 dumps, 0 logs, 0 stacks",
    ]


def test_an_inconclusive_verdict_accuses_nobody_and_says_what_is_next() -> None:
    text = lines(verdicts.INCONCLUSIVE)

    assert "who       no rank can be singled out" in text
    assert "next      TORCH_FR_BUFFER_SIZE=2000" in text


def test_the_timeline_takes_five_lines_and_tells_of_suspects_and_machines_first() -> None:
    echo = replace(verdicts.TIMED_OUT, kind="dumped", says="began to write the dump")
    fault = replace(
        verdicts.ISSUED, source=Source.KERNEL, kind="xid", ranks=(), says="Xid 79", utc="2026-11-15T01:18:09Z"
    )
    text = lines(replace(verdicts.FOUND, moments=(verdicts.ISSUED, fault, *[verdicts.TIMED_OUT] * 3, *[echo] * 9)))
    start = next(n for n, line in enumerate(text) if line.startswith("timeline"))

    assert [line[10:] for line in text[start : start + 5]] == [
        "01:18:07Z rank 0 issued all_reduce [2], default_pg seq 16",
        "01:18:09Z node-1: Xid 79",
        "01:18:27Z ranks 1-3 timed out in ALLREDUCE seq 16 after 20.1 s",
        "01:18:27Z ranks 1-3 timed out in ALLREDUCE seq 16 after 20.1 s",
        "10 more moments (-v)",
    ]


def test_a_moment_on_another_clock_or_only_bounded_says_so() -> None:
    apart = replace(verdicts.TIMED_OUT, utc=None, clock="rank 3: local time", bound=True, ranks=(3,))

    text = lines(replace(verdicts.FOUND, moments=(verdicts.ISSUED, apart)), 200)

    assert "          by 1115 01:18:27 (own clock) rank 3 timed out in ALLREDUCE seq 16 after 20.1 s" in text


@pytest.mark.parametrize("moments", [(verdicts.ISSUED,), (verdicts.ISSUED,) * 2])
def test_few_moments_of_one_source_are_no_timeline(moments) -> None:
    assert not any(line.startswith("timeline") for line in lines(replace(verdicts.FOUND, moments=moments)))


@for_each(("ranks", "width"), product([8, 1000, 100_000], [40, 80, 200]), one_in=4)  # each number once
def test_any_job_fits_one_screen(ranks: int, width: int) -> None:
    text = lines(verdicts.crowded(ranks), width)

    assert len(text) <= SCREEN_LINES
    assert max(map(cell_len, text)) <= width


def test_what_does_not_fit_is_counted() -> None:
    text = "\n".join(lines(verdicts.crowded(1000)))

    assert "and 4 more cohorts" in text
    assert "1000 more pieces (-v)" in text
    assert not any(line.endswith("...") for line in text.split("\n"))


def test_verbose_leaves_nothing_out() -> None:
    text = render_text(verdicts.crowded(1000), 80, verbose=True).plain

    assert text.count("says says") > 1000
    assert "-v" not in text


QUOTED = replace(
    verdicts.FOUND,
    quotes=(
        Quote(
            "train.py",
            13,
            (
                "",
                "def log_progress(step, metric):",
                "    if is_main_process():",
                "        log(metric.compute())",
                "",
                "",
            ),
            marked=15,
            condition=15,
            frame=None,
            site=0,
        ),
    ),
    findings=(replace(verdicts.FINDING, fixes=(Fix("Let every rank call it.", PATCH),)),),
)


def test_the_fork_is_shown_as_compilers_show_an_error() -> None:
    text = lines(QUOTED)

    assert text[4:11] == [
        "  --> train.py:15 in log_progress",
        "   |",
        "14 | def log_progress(step, metric):",
        "15 |     if is_main_process():",
        "   |        ^^^^^^^^^^^^^^^^^ rank 0 diverged here",
        "16 |         log(metric.compute())  <- rank 0",
        "   |",
    ]
    assert "          rank 0: elsewhere, all_reduce [2] Float (entering), from metrics.py:15" in text


def test_a_line_that_explains_nothing_is_not_said_to_be_where_ranks_diverged() -> None:
    bare = tuple(replace(site, why=None) for site in QUOTED.sites)

    assert any("diverged here" in line for line in lines(QUOTED))
    assert not any("diverged here" in line for line in lines(replace(QUOTED, sites=bare)))


def test_code_wider_than_the_screen_goes_on_in_the_next_line_with_the_caret_where_the_condition_is() -> None:
    wide = "    if all(torch.isfinite(parameter.grad).all() for parameter in model.parameters()) and is_main_process():"
    quote = replace(
        QUOTED.quotes[0], lines=("def log_progress(step, metric):", wide, "        log(metric.compute())"), first=14
    )

    text = lines(replace(QUOTED, quotes=(quote,)))

    assert text[6:12] == [
        "14 | def log_progress(step, metric):",
        "15 |     if all(torch.isfinite(parameter.grad).all() for parameter in",
        "   |         model.parameters()) and is_main_process():",
        "   |                                 ^^^^^^^^^^^^^^^^^ rank 0 diverged here",
        "16 |         log(metric.compute())  <- rank 0",
        "   |",
    ]


def test_a_wide_line_of_a_patch_is_not_cut() -> None:
    row = "+    padded = padded + raise_together(CorruptSample, decode, sample, rank, step).mean().to(device)"
    fix = Fix("Do so.", f"--- a/train.py\n+++ b/train.py\n@@ -15 +15 @@\n-if a:\n{row}\n")

    text = lines(replace(QUOTED, findings=(replace(verdicts.FINDING, fixes=(fix,)),)))

    place = text.index("          +    padded = padded + raise_together(CorruptSample, decode, sample,")
    assert text[place + 1] == "                   rank, step).mean().to(device)"


def test_the_next_step_does_not_repeat_a_probe() -> None:
    finding = replace(verdicts.FINDING, probes=(Probe("print the branch"),))
    asked = replace(verdicts.FOUND, findings=(finding,), next=("print the branch", "the log of rank 2"))

    assert section(asked, "next") == "next      the log of rank 2"


def test_the_patch_stands_under_its_fix_in_colours() -> None:
    report = render_text(QUOTED, 80)

    place = report.plain.split("\n").index("do        fix-code: Let every rank call it.")
    assert report.plain.split("\n")[place + 1 : place + 6] == [f"          {row}" for row in PATCH.splitlines()]
    styles = {str(span.style) for span in report.spans}
    assert {"red", "green", "cyan"} <= styles


def test_of_a_long_patch_the_hunk_at_the_fork_is_shown_whole() -> None:
    helper = "@@ -1,2 +1,22 @@\n" + "\n".join(f"+line {n}" for n in range(20))
    patch = f"--- a/train.py\n+++ b/train.py\n{helper}\n@@ -14,2 +34,2 @@\n-if a:\n+if b:\n"
    long = replace(QUOTED, findings=(replace(verdicts.FINDING, fixes=(Fix("Do so.", patch),)),))

    text = lines(long)

    assert "          +if b:" in text
    assert "          +line 3" not in text
    assert "          21 more lines of the patch (-v)" in text
    assert "          +line 3" in render_text(long, 80, verbose=True).plain.split("\n")


def test_suspects_stand_first_among_the_cohorts() -> None:
    cohorts = [Cohort((rank,), Role.WAITING) for rank in range(9)]
    verdict = replace(verdicts.FOUND, suspects=(7,), divergence=replace(verdicts.DIVERGENCE, cohorts=tuple(cohorts)))

    shown = [line.split()[0] for line in lines(verdict) if "waiting" in line]

    assert shown == ["7", "0", "1"]


def test_evidence_about_suspects_is_shown_first_under_its_own_number() -> None:
    text = lines(replace(verdicts.FOUND, suspects=(1,)), 200)

    assert next(line for line in text if line.startswith("evidence")).startswith("evidence  E2 rank 1")


def test_three_different_seqs_are_all_named() -> None:
    divergence = replace(verdicts.DIVERGENCE, seq=3, first_visible_seq=5, hang_seq=9)

    what = section(replace(verdicts.FOUND, divergence=divergence), "what")

    assert what.endswith("collective seq 3, visible from seq 5, waiting in seq 9")


def test_a_channel_is_named_by_its_ends() -> None:
    divergence = replace(verdicts.DIVERGENCE, channel=(2, 3), seq=None, first_visible_seq=None)

    what = section(replace(verdicts.FOUND, divergence=divergence), "what")

    assert "p2p 2 -> 3 seq not recorded, waiting in seq 16" in what


def test_a_ring_of_waiting_ranks_is_drawn() -> None:
    divergence = replace(verdicts.DIVERGENCE, cycle=(1, 2, 5))

    what = section(replace(verdicts.FOUND, divergence=divergence), "what")

    assert what.endswith(", waiting in a ring: 1 -> 2 -> 5 -> 1")


def test_torch_is_shown_only_where_there_is_no_user_code() -> None:
    torch_only = (Frame("wait", verdicts.TORCH + "distributed_c10d.py", 9), Frame("run", "<frozen runpy>", 88))
    cohort = Cohort((0,), Role.WAITING, "all_reduce", stack=torch_only)
    verdict = replace(verdicts.FOUND, divergence=replace(verdicts.DIVERGENCE, cohorts=(cohort,)))

    text = "\n".join(lines(verdict, 200))

    assert "distributed_c10d.py:9 wait" in text
    assert "frozen" not in text
    assert "distributed_c10d.py" not in "\n".join(lines(verdicts.FOUND))


@given(verdicts.VERDICTS)
def test_no_input_can_act_on_the_terminal_or_break_the_layout(verdict: Verdict) -> None:
    text = lines(verdict)

    assert all(line.isprintable() for line in text)
    assert len(text) <= SCREEN_LINES + MAX_DIFF_LINES + 1
    assert max(map(cell_len, text)) <= 80


def test_markup_in_input_is_only_text() -> None:
    out = io.StringIO()
    verdict = replace(verdicts.FOUND, headline="[red]x[/red] [link=file:///etc]y[/link] :smile:")

    Console(file=out, width=80).print(render_text(verdict, 80), soft_wrap=True, highlight=False)

    assert "[red]x[/red] [link=file:///etc]y[/link] :smile:" in out.getvalue()
