"""One odd file costs itself alone: the verdict on the others is printed, in every form."""

import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forkpoint import pipeline
from forkpoint.cli import main
from forkpoint.errors import HostileInput, UnreadableInput
from forkpoint.evidence import read
from forkpoint.evidence.summary_file import summarise
from forkpoint.judge.detectors import host_stall
from forkpoint.model.verdict import Cause
from forkpoint.pipeline import diagnose
from forkpoint.report import perfetto
from forkpoint.report.pictures import lanes
from forkpoint.traces import native
from forkpoint.traces.dump import decode
from hardened.mutations import resealed
from hardened.odd import AMPLIFIED, GROWING, ODD, good_dump, packed, with_good
from hardened.whole import run_whole
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each
from test_habits import SRC

READERS = ["0", "1"] if native._library() else ["0"]
"""FORKPOINT_NATIVE."""


@for_each("name", ODD)
def test_an_odd_dump_beside_good_ones_breaks_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = with_good(tmp_path / name.replace(" ", "-"), "nccl_trace_rank_3", ODD[name]())

    for reader in READERS:
        monkeypatch.setenv("FORKPOINT_NATIVE", reader)
        assert run_whole([folder]).internal == ()


def test_a_message_in_a_group_without_a_name_and_without_collectives_breaks_nothing(tmp_path: Path):
    waiting = {"state": "scheduled", "time_discovered_completed_ns": None, "retired": False}
    send = {"profiling_name": "nccl:send 0->1", "is_p2p": True}
    calls = {
        0: [entry(0), entry(1), entry(2, **waiting)],
        2: [entry(0), entry(1, **send), entry(2, process_group=("", ""), **send, **waiting)],
    }
    for rank, made in calls.items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(encode(dump(made)))

    assert run_whole([tmp_path]).internal == ()


def test_a_summary_that_was_changed_and_sealed_again_breaks_nothing(tmp_path: Path):
    folder, chance = with_good(tmp_path, "nccl_trace_rank_3", good_dump(3)), random.Random(25)
    sealed = summarise([str(folder)])

    for _ in range(30):
        (folder / "node.fps").write_bytes(resealed(chance, sealed))
        assert run_whole([folder]).internal == ()


def test_a_second_dump_behind_the_first_is_said(tmp_path: Path):
    folder = with_good(tmp_path, "nccl_trace_rank_3", ODD["a second dump behind the first"]())

    problems = {Path(problem.file).name: problem.text for problem in read([str(folder)]).problems}

    assert "bytes after its end" in problems["nccl_trace_rank_3"]


def broken(*_args: object, **_named: object) -> object:
    raise IndexError("planted")


def test_a_detector_that_breaks_costs_its_own_answer_and_a_well_job_is_not_called_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(good_dump(0).replace(b"scheduled", b"completed"))
    well = diagnose(read([str(tmp_path)]))
    monkeypatch.setattr("forkpoint.judge.verdict.DETECTORS", (host_stall_that_breaks,))

    verdict = diagnose(read([str(tmp_path)]))

    assert well.cause is Cause.HEALTHY
    assert verdict.cause is Cause.INCONCLUSIVE
    assert [problem.error for problem in verdict.internal] == ["IndexError"]
    assert "internal problem" in verdict.coverage.notes[-1]


def host_stall_that_breaks(incident: object) -> object:
    return broken(incident, host_stall)


@for_each(
    ("module", "function", "option"),
    [(lanes, "draw_lanes", "--html"), (perfetto, "export_perfetto", "--perfetto")],
)
def test_a_picture_or_an_export_that_breaks_leaves_the_verdict_and_a_report_for_us(
    module: object, function: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = with_good(tmp_path / "evidence", "nccl_trace_rank_3", good_dump(3))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(f"forkpoint.report.pictures.{function}" if option == "--html" else f"{module.__name__}.{function}", broken)  # type: ignore[attr-defined]  # fmt: skip
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    code = main(["diagnose", str(folder), option, str(tmp_path / "out"), "--width", "100"])

    assert code == 1
    assert "rank 2" in out.getvalue()
    assert "internal problem: the" in err.getvalue()
    (report,) = tmp_path.glob("forkpoint-bug-*.txt")
    assert "planted" in report.read_text()
    report.unlink()


def test_a_stage_that_breaks_on_one_dump_is_done_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = with_good(tmp_path, "nccl_trace_rank_3", good_dump(3))
    align = pipeline.align

    def breaks_on_rank_0(capture):
        return broken() if 0 in capture.traces.ranks else align(capture)

    monkeypatch.setattr(pipeline, "align", breaks_on_rank_0)

    verdict = diagnose(read([str(folder)]))

    assert verdict.coverage.dumps == 3
    assert [aside.rank for aside in verdict.coverage.set_aside] == [0]
    assert verdict.internal


def test_a_reader_that_breaks_costs_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = with_good(tmp_path, "nccl_trace_rank_3", b"\x80\x02}.")
    monkeypatch.setenv("FORKPOINT_NATIVE", "0")
    monkeypatch.setattr("forkpoint.traces.dump.finish", broken)

    with pytest.raises(UnreadableInput, match="forkpoint failed on it"):
        read([str(folder)])


# ----------------------------------------------------------------------------------------------------------------- costs


@for_each("name", AMPLIFIED)
def test_a_text_that_is_written_once_and_meant_a_thousand_times_is_refused_by_both_readers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make = AMPLIFIED[name]
    folder = with_good(tmp_path / name.replace(" ", "-"), "nccl_trace_rank_3.gz", packed(make(150, 300_000)))

    with pytest.raises(HostileInput, match="expands to far more text"):
        decode(make(150, 300_000), "f")
    for reader in READERS:
        monkeypatch.setenv("FORKPOINT_NATIVE", reader)
        (problem,) = read([str(folder)]).problems
        assert "expands to far more text" in problem.text
    assert len(decode(make(20, 1000), "f").group) == 20


@for_each("name", GROWING, one_in=2)
def test_four_times_the_input_takes_four_times_the_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORKPOINT_NATIVE", "0")
    make, count = GROWING[name]
    work = [_calls_to_diagnose(tmp_path, make(times * count)) for times in (1, 4)]

    assert work[1] <= 5 * work[0] + 20_000


def _calls_to_diagnose(folder: Path, data: bytes) -> int:
    file = folder / "nccl_trace_rank_0"
    file.write_bytes(data)
    return _calls(lambda: diagnose(read([str(file)])))


def _lines(work: Callable[[], object]) -> int:
    """That Python runs, counting a line again for each round of a loop in it: a comprehension makes no calls."""
    lines = 0

    def count(_frame: object, event: str, _argument: object) -> Callable[..., object]:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines


def _calls(work: Callable[[], object]) -> int:
    """Python's own and C's, which a busy machine does not change."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    except (HostileInput, UnreadableInput):
        pass
    finally:
        sys.setprofile(None)
    return calls


# ----------------------------------------------------------------------------------------------------------------- small

WATCHDOG = (
    b"[rank0]:[E1115 01:18:27.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
    b"WorkNCCL(SeqNum=16, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=20000) ran for 20091 milliseconds\n"
)


@for_each("before", [b"\0" * 5000, b"\0" * 200_000, b"step 1\n" + b"\0" * 3000])
def test_a_log_that_was_truncated_while_it_grew_is_read_past_its_nuls(before: bytes, tmp_path: Path):
    (tmp_path / "rank_0.log").write_bytes(before + WATCHDOG)

    assert [event.rank for event in read([str(tmp_path)]).events] == [0]


def test_a_binary_file_is_still_no_log(tmp_path: Path):
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 100)

    with pytest.raises(UnreadableInput, match="neither a dump nor text"):
        read([str(tmp_path)])


def test_files_that_hold_nothing_are_not_called_missing(tmp_path: Path):
    (tmp_path / "rank_0.log").write_bytes(b"")
    with pytest.raises(UnreadableInput, match=r"rank_0\.log is empty"):
        read([str(tmp_path)])


def test_the_compiled_reader_carries_its_licence():
    native_folder = SRC.parents[1] / "native"

    assert (native_folder / "LICENSE").read_text() == (SRC.parents[1] / "LICENSE").read_text()
    assert 'license-files = ["LICENSE"]' in (native_folder / "pyproject.toml").read_text()


def test_four_times_the_logs_take_four_times_the_work(tmp_path: Path):
    work: list[int] = []
    for place, count in enumerate((20, 20, 80, 320)):
        folder = tmp_path / str(place)
        folder.mkdir()
        for rank in range(count):
            said = b"step 7 param_sha1 ab12cd\n" + WATCHDOG.replace(b"0", b"%d" % (rank % 9)) + b"step 7 done\n"
            (folder / f"rank_{rank}.log").write_bytes(said)
        capture = read([str(folder)])
        work.append(_lines(lambda capture=capture: diagnose(capture)))

    _, few, more, most = work  # the first also fills caches
    assert most - more <= 5 * (more - few)
