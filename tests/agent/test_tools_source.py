"""What tools tell of source. Nothing is opened for them."""

from pathlib import Path

import pytest

from agent.asking import ask, says
from agent.claim_cases import all_recorded, recorded, with_source
from cases import CASES
from forkpoint.brief.case import QuestionRefused, open_case
from looping import for_each


def test_read_source_shows_lines_as_written() -> None:
    told = {f.where: f.says for f in ask(recorded("0001"), "read_source", file="train.py", line=15, around=1)}

    assert told["train.py:15"] == "    if is_main_process():"
    assert [*told] == ["train.py:14", "train.py:15", "train.py:16"]


@for_each(
    "file",
    [
        "../train.py",
        "../source/train.py",
        "/etc/passwd",
        str(CASES / "0001/source/train.py"),
        "train.py\0",
        "",
        ".",
        "rain.py",
    ],
)
def test_read_source_refuses_whatever_is_not_a_name_it_gave(file: str) -> None:
    with pytest.raises(QuestionRefused, match=r"no such file was read; there are .*train\.py"):
        ask(recorded("0001"), "read_source", file=file, line=1)


def test_read_source_finds_a_file_by_the_end_of_its_path_where_only_one_ends_so(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    case = with_source(tmp_path, **{"one/loop": "a = 1", "two/loop": "a = 2", "one/only": "a = 3"})

    assert any("a = 3" in line for line in says(case, "read_source", file="only.py", line=1, around=29))
    with pytest.raises(QuestionRefused):
        ask(case, "read_source", file="loop.py", line=1)


def test_read_source_lists_files_and_functions() -> None:
    case = recorded("0001")

    assert {f.where for f in ask(case, "read_source")} == {"metrics.py", "train.py"}
    assert "log_progress; reaches all_reduce" in says(case, "read_source", file="train.py")


def test_read_source_refuses_a_line_beyond_the_end() -> None:
    with pytest.raises(QuestionRefused, match=r"train.py has 42 lines"):
        ask(recorded("0001"), "read_source", file="train.py", line=43)


def test_source_tools_say_that_no_source_was_given() -> None:
    case = open_case([str(CASES / "0001" / "capture")])

    for name, given in (
        ("read_source", {}),
        ("taint", {"file": "train.py", "line": 15}),
        ("callers", {"function": "main"}),
    ):
        with pytest.raises(QuestionRefused, match="no source was given"):
            ask(case, name, **given)


def test_a_secret_in_source_is_not_shown(tmp_path: Path) -> None:
    case = with_source(tmp_path, train='TOKEN = "hf_' + "aB3" * 12 + '"')

    told = says(case, "read_source", file="train.py", line=1, around=29)

    assert any(line.startswith("TOKEN = ") for line in told)
    assert not any("aB3aB3" in line for line in told)


def test_callers_show_both_directions() -> None:
    told = [(f.where, f.says) for f in ask(recorded("0001"), "callers", function="log_progress")]

    assert ("train.py:37", "main calls log_progress: `log_progress(step, metric)`") in told
    assert (
        "train.py:16",
        "log_progress calls `metric.compute()`: MeanMetric.compute in metrics.py:13, which reaches all_reduce",
    ) in told


def test_a_function_of_a_name_that_several_have_is_refused_with_all_of_them(tmp_path: Path) -> None:
    case = with_source(tmp_path, train="class A:\n    def go(self): ...\nclass B:\n    def go(self): ...\n")

    with pytest.raises(QuestionRefused, match=r"A\.go in train\.py:\d+, B\.go in train\.py:\d+"):
        ask(case, "callers", function="go")
    assert says(case, "callers", function="A.go")[0].startswith("A.go: ")


def test_taint_names_origin_and_line_and_what_stands_inside() -> None:
    assert says(recorded("0001"), "taint", file="train.py", line=15) == [
        (
            "decides by `is_main_process()`: can differ by rank (origin rank, certain: `dist.get_rank()` at train.py:11: "
            "it is this rank's own number or position)"
        ),
        "inside: compute(), which leads to all_reduce (line 16)",
    ]


def test_taint_says_equal_and_not_known_where_that_is_so(tmp_path: Path) -> None:
    case = with_source(
        tmp_path,
        train="""
        def main(flag):
            if flag == read():  # unknown
                dist.barrier()
            if 2 > 1:  # equal
                dist.barrier()
            try:
                step()
            except RuntimeError:  # caught
                pass
        """,
    )
    lines = (tmp_path / "train.py").read_text().splitlines()
    at = {
        mark: next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
        for mark in ("unknown", "equal", "caught")
    }

    assert "unknown" in says(case, "taint", file="train.py", line=at["unknown"])[0]
    assert says(case, "taint", file="train.py", line=at["equal"])[0].endswith("equal on all ranks")
    assert "origin exception" in says(case, "taint", file="train.py", line=at["caught"])[0]


def test_taint_of_a_collective_tells_why_what_is_passed_differs() -> None:
    told = says(recorded("0028"), "taint", file="train.py", line=21)

    assert any(line.startswith("broadcast is passed `weight`") and "origin rank" in line for line in told)


def test_taint_of_a_line_without_a_decision_names_the_nearest() -> None:
    with pytest.raises(QuestionRefused, match=r"the nearest are at .*15"):
        ask(recorded("0001"), "taint", file="train.py", line=16)


def test_taint_agrees_with_the_truth_of_cases_that_part_by_rank() -> None:
    """At the site that the bridge found, taint gives the reason that the verdict gives."""
    agreed = 0
    for _, case in all_recorded():
        if not case.forks or case.forks[0].test is None or not case.forks[0].reasons:
            continue
        site = case.verdict.sites[0]
        try:
            told = says(case, "taint", file=site.file, line=site.line)
        except QuestionRefused:
            continue  # where a rank raised or is held nothing is decided
        agreed += 1
        assert any("can differ by rank" in line for line in told), (site, told)

    assert agreed >= 50
