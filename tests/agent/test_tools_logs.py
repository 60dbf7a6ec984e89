"""What tools tell of logs."""

import gzip
from pathlib import Path

import pytest

from agent.asking import ask, says
from agent.claim_cases import recorded
from cases import CASES
from forkpoint.agent.tools import logs
from forkpoint.brief.case import MAX_CHARACTERS, QuestionRefused, open_case
from looping import for_each


def test_log_lines_without_arguments_list_the_files() -> None:
    told = {f.where.rpartition("/")[2]: f.says for f in ask(recorded("0001"), "log_lines")}

    assert told["log_rank_1.txt"] == "of rank 1"
    assert "nccl_trace_rank_0" not in told


def test_log_lines_around_a_line() -> None:
    told = [
        f.where.rpartition("/")[2] for f in ask(recorded("0001"), "log_lines", file="log_rank_1.txt", line=13, around=1)
    ]

    assert told == [f"log_rank_1.txt line {number}" for number in (12, 13, 14)]


def test_log_lines_by_text_of_any_case_and_by_rank() -> None:
    every = ask(recorded("0001"), "log_lines", contains="WATCHDOG CAUGHT")
    one = ask(recorded("0001"), "log_lines", contains="watchdog caught", rank=2)

    assert [f.where.rpartition("/")[2] for f in every] == [
        "log_rank_1.txt line 13",
        "log_rank_2.txt line 54",
        "log_rank_3.txt line 13",
    ]
    assert [f.where.rpartition("/")[2] for f in one] == ["log_rank_2.txt line 54"]


@for_each("since", ["01:18:28", "1115 01:18:28", "2026-11-15 01:18:28"])
def test_log_lines_since_a_time_as_any_log_prints_it(since: str) -> None:
    told = ask(recorded("0001"), "log_lines", file="log_rank_0.txt", since=since)

    assert [f.where.rpartition(" ")[2] for f in told] == [str(number) for number in range(59, 68)]


def test_log_lines_until_a_time() -> None:
    told = ask(recorded("0001"), "log_lines", file="log_rank_0.txt", contains="reducer", until="01:18:06")

    assert [f.where.rpartition(" ")[2] for f in told] == ["55"]


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(QuestionRefused, match="write the time as logs do"):
        ask(recorded("0001"), "log_lines", since="yesterday")


def test_log_lines_of_a_rank_in_a_common_log_are_those_it_said(tmp_path: Path) -> None:
    logs = [(CASES / "0001" / "capture" / f"log_rank_{rank}.txt").read_text().splitlines() for rank in (1, 2)]
    common = [line for lines in zip(*logs, strict=False) for line in lines if line.startswith("[rank")]
    (tmp_path / "job.log").write_text("\n".join(common) + "\n")
    case = open_case([str(tmp_path)])

    told = says(case, "log_lines", rank=2, contains="PG GUID")

    assert told
    assert all(line.startswith("[rank2]") for line in told)


def test_log_lines_of_a_rank_alone_are_the_end_of_its_log() -> None:
    last = [f.where for f in ask(recorded("0001"), "log_lines", rank=1) if "log_rank" in f.where][-1]
    lines = (CASES / "0001" / "capture" / "log_rank_1.txt").read_bytes().count(b"\n")

    assert last.endswith(f"line {lines}")


def test_a_secret_cannot_be_guessed_by_searching_for_its_letters(tmp_path: Path) -> None:
    """Whoever asks could try letter after letter, if what is masked were searched."""
    secret = "hf_" + "Qx7" * 12
    log = (CASES / "0001" / "capture" / "log_rank_1.txt").read_text()
    (tmp_path / "log_rank_1.txt").write_text(f"{log}login with {secret} done\n")
    case = open_case([str(tmp_path)])

    assert any("login with" in line for line in says(case, "log_lines", contains="login with"))
    for guess in (secret, secret[:8], "Qx7Qx7"):
        with pytest.raises(QuestionRefused, match="no such line"):
            ask(case, "log_lines", contains=guess)


def test_a_host_is_found_by_the_pseudonym_under_which_it_is_shown() -> None:
    case = recorded("0001")
    shown = next(line for line in says(case, "log_lines", rank=0) if "Init COMPLETE" in line)
    pseudonym = shown.partition(":")[0]
    assert pseudonym.startswith("host-")

    assert any("Init COMPLETE" in line for line in says(case, "log_lines", rank=0, contains=f"{pseudonym}:"))


def test_a_line_of_many_words_is_cut_to_what_a_fact_may_have(tmp_path: Path) -> None:
    log = (CASES / "0001" / "capture" / "log_rank_1.txt").read_bytes()
    (tmp_path / "log_rank_1.txt").write_bytes(log + b"boom" + b" word" * 1_000_000 + b"\n")

    (fact,) = ask(open_case([str(tmp_path)]), "log_lines", contains="boom")

    assert len(fact.says) == MAX_CHARACTERS


def test_a_huge_and_hostile_line_is_cut_and_shown_without_acting(tmp_path: Path) -> None:
    log = (CASES / "0001" / "capture" / "log_rank_1.txt").read_bytes()
    (tmp_path / "log_rank_1.txt").write_bytes(log + b"\x1b[2Jboom \xe2\x80\xae" + b"A" * 3_000_000 + b"\n")

    (fact,) = ask(open_case([str(tmp_path)]), "log_lines", contains="boom")

    assert fact.says.endswith("boom…")
    assert fact.says.isprintable()


def test_a_search_that_finds_nothing_in_much_text_ends_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of which each holds the text, masked: none of them may be shown, all of them must be cleaned."""
    log = (CASES / "0001" / "capture" / "log_rank_1.txt").read_text()
    (tmp_path / "log_rank_1.txt").write_text(log + f"hf_{'Qx7' * 12}\n" * 1000)
    monkeypatch.setattr(logs, "_LOOKED_AT", 2000)

    (told,) = says(open_case([str(tmp_path)]), "log_lines", contains="Qx7")

    assert "too many lines to search" in told


def test_log_lines_of_a_packed_log(tmp_path: Path) -> None:
    log = (CASES / "0001" / "capture" / "log_rank_1.txt").read_bytes()
    (tmp_path / "log_rank_1.txt.gz").write_bytes(gzip.compress(log))

    (fact,) = ask(open_case([str(tmp_path)]), "log_lines", contains="watchdog caught")

    assert fact.where.endswith("log_rank_1.txt line 13")


@for_each("file", ["../case.toml", "/etc/passwd", "nccl_trace_rank_0", "x\0"])
def test_log_lines_of_what_is_no_log_of_the_case_are_refused(file: str) -> None:
    with pytest.raises(QuestionRefused, match="no such file in this case"):
        ask(recorded("0001"), "log_lines", file=file, contains="a")
