"""A trace as ui.perfetto.dev takes it: the rules its importer holds events to."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import forkpoint
import verdicts
from forkpoint.model.verdict import Verdict
from forkpoint.report import perfetto
from forkpoint.report.perfetto import DumpsAgain, entries_per_rank, export_perfetto
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each
from small_jobs import SmallJob

DEMO = Path(forkpoint.__file__).parent / "demo"
Event = dict[str, Any]


def document(paths: list[str], verdict: Verdict | None = None) -> dict[str, Any]:
    capture = forkpoint.read(paths)
    pieces = export_perfetto(capture, verdict or forkpoint.diagnose(capture), DumpsAgain(paths, capture))
    text = "".join(pieces)
    assert text.isascii()
    return json.loads(text)


def written(job: SmallJob, folder: Path, **options: Any) -> dict[str, Any]:
    """The trace of a small job whose dumps lie in the folder."""
    for rank in range(job.world):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank, options.get("buffer")))
    return document([str(folder)])


def of(trace: dict[str, Any], *phases: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] in phases]


def slices(trace: dict[str, Any]) -> list[Event]:
    return of(trace, "X", "B")


def named(trace: dict[str, Any], what: str) -> list[str]:
    return [event["args"]["name"] for event in of(trace, "M") if event["name"] == what]


def check_rules(trace: dict[str, Any]) -> None:
    """What an importer drops or misplaces without a word."""
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in slices(trace):
        tracks[event["pid"], event["tid"]].append(event)
    assert len({tid for _, tid in tracks}) == len(tracks)
    assert not {pid for pid, _ in tracks} & {tid for _, tid in tracks}
    for events in tracks.values():
        ends = [event["ts"] + event.get("dur", 0) for event in events]
        assert all(end <= after["ts"] + 0.001 for end, after in zip(ends, events[1:], strict=False))
        assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events[:-1])
    flows: dict[int, list[Event]] = defaultdict(list)
    for event in of(trace, "s", "t", "f"):
        flows[event["id"]].append(event)
        assert event["ts"] in {e["ts"] for e in tracks[event["pid"], event["tid"]]}
    for points in flows.values():
        assert "".join(event["ph"] for event in points) == "s" + "t" * (len(points) - 2) + "f"
        assert [event["ts"] for event in points] == sorted(event["ts"] for event in points)


def test_a_real_incident_has_a_process_per_rank_and_a_slice_per_op() -> None:
    trace = document([str(DEMO)])

    check_rules(trace)
    processes = [name[:6] for name in named(trace, "process_name")]
    assert processes == ["rank 0", "rank 1", "rank 2", "rank 3", "end of"]
    assert named(trace, "process_name")[0].startswith("rank 0 (suspect)")
    assert named(trace, "thread_name") == ["default_pg (group 0)"] * 4
    assert len(slices(trace)) == trace["otherData"]["slices"] == 64


def test_an_op_that_never_ended_stays_open_and_says_how_far_it_came() -> None:
    trace = document([str(DEMO)])

    still = {event["pid"]: event for event in of(trace, "B")}
    assert still[0]["name"] == "all_reduce [2] (entering)"
    assert [still[rank]["name"] for rank in (1, 2, 3)] == ["all_reduce [71178] (scheduled)"] * 3
    assert still[0]["cat"] == "collective,unfinished"
    assert still[0]["args"]["seq"] == 16
    assert still[0]["args"]["frames"][0].endswith("metrics.py:15 compute")
    (end,) = of(trace, "i")
    assert end["ts"] > max(event["ts"] for event in still.values())


def test_arrows_bind_each_slot_around_the_fork_over_all_ranks() -> None:
    trace = document([str(DEMO)])

    assert len(of(trace, "s")) == len(of(trace, "f")) == 16
    last = [event for event in of(trace, "s", "t", "f") if event["id"] == 1]
    assert {event["pid"] for event in last} == {0, 1, 2, 3}


def test_without_a_fork_there_are_no_arrows() -> None:
    trace = document([str(DEMO)], verdicts.HEALTHY)

    assert of(trace, "s", "t", "f") == []


def test_arrows_are_bounded_and_nearest_the_fork(tmp_path: Path) -> None:
    job = SmallJob(2)
    for _ in range(400):
        job.op()
    job.op([0], done=False)

    trace = written(job, tmp_path)

    check_rules(trace)
    begun = of(trace, "s")
    assert 90 <= len(begun) <= 200
    assert min(event["ts"] for event in begun) > 2_000_000


def test_messages_have_a_track_per_channel(tmp_path: Path) -> None:
    job = SmallJob(2)
    job.op()
    for _ in range(3):
        job.send(0, 1)
        job.recv(1, 0)
    job.send(0, 1, done=False)

    trace = written(job, tmp_path)

    check_rules(trace)
    assert named(trace, "thread_name").count("default_pg (group 0) 0 -> 1") == 2
    assert {event["cat"] for event in slices(trace)} >= {"collective", "p2p"}


def test_messages_counted_from_different_firsts_are_not_bound(tmp_path: Path) -> None:
    job = SmallJob(2)
    for _ in range(30):
        job.send(0, 1)
        job.recv(1, 0)
    job.send(0, 1, done=False)

    assert of(written(job, tmp_path, buffer=5), "s") == []


def test_clocks_that_step_back_do_not_turn_a_track_around(tmp_path: Path) -> None:
    job = SmallJob(2)
    for step in range(6):
        job.op(time_created_ns=1_794_705_486_000_000_000 - step)
    job.op(time_created_ns=0)

    check_rules(written(job, tmp_path))


def test_past_the_limit_the_newest_of_every_rank_are_kept_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "MAX_SLICES", 10)
    job = SmallJob(2)
    for _ in range(40):
        job.op()

    trace = written(job, tmp_path)

    assert {event["args"]["seq"] for event in slices(trace)} == {36, 37, 38, 39, 40}
    assert trace["otherData"]["left_out"] == "all but the newest 5 entries of 2 ranks"
    labels = [event["args"]["labels"] for event in of(trace, "M") if event["name"] == "process_labels"]
    assert labels == ["35 older entries left out"] * 2


@for_each(
    ("held", "budget", "each"),
    [([], 10, 0), ([3, 4], 10, 4), ([100, 100], 10, 5), ([1, 100, 100], 11, 5), ([9] * 20, 10, 0)],
)
def test_what_ranks_with_few_entries_leave_goes_to_the_others(held: list[int], budget: int, each: int) -> None:
    assert entries_per_rank(held, budget) == each
    assert sum(min(entries, each) for entries in held) <= budget


def test_dumps_in_an_archive_are_read_again(tmp_path: Path) -> None:
    import tarfile  # noqa: PLC0415 - one test

    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        archive.add(DEMO, "demo")

    trace = document([str(tmp_path / "job.tar.gz")])

    assert len(slices(trace)) == 64


def test_a_dump_that_has_gone_is_said(tmp_path: Path) -> None:
    job = SmallJob(2)
    job.op()
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))
    capture = forkpoint.read([str(tmp_path)])
    (tmp_path / "nccl_trace_rank_1").write_bytes(b"something else")
    again = DumpsAgain([str(tmp_path)], capture)

    trace = json.loads("".join(export_perfetto(capture, forkpoint.diagnose(capture), again)))

    assert trace["otherData"]["not_read_again"] == "1"
    assert len(slices(trace)) == 1


def test_nothing_to_read_is_an_empty_trace() -> None:
    capture = forkpoint.read([str(DEMO / "log_rank_1.txt")])

    trace = json.loads("".join(export_perfetto(capture, verdicts.HEALTHY, [])))

    assert trace["traceEvents"] == []


@for_each("text", ["</script><b>", '"},{"ph":"X"}', "\x1b[2J\u202e\x00\x7f", "x" * 100_000, "\\u0041\\"], ids=ascii)
def test_hostile_names_are_text_and_short(tmp_path: Path, text: str) -> None:
    job = SmallJob(2, groups={"1": (text, (0, 1))})
    job.op(group="1", name=text, thread_name=text, frames=[{"name": text, "filename": text, "line": 1}])
    job.op(group="1", size=[1] * 1000, input_dtypes=[text])

    trace = written(job, tmp_path)

    check_rules(trace)
    shown = json.dumps(trace, ensure_ascii=False)
    assert shown.isprintable()
    assert len(shown) < 20_000


def test_dumps_that_would_take_too_long_are_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(encode(dump([entry(n) for n in range(5 + 2000 * rank)])))
    capture = forkpoint.read([str(tmp_path)])
    monkeypatch.setattr("forkpoint.report.perfetto.cpu_s", lambda: 117.9)

    again = DumpsAgain([str(tmp_path)], capture, since_s=100.0)

    assert [trace.rank for trace, _ in again] == [0]
    assert again.left_out == [1]
    trusted = DumpsAgain([str(tmp_path)], capture, limited=False)
    assert [trace.rank for trace, _ in trusted] == [0, 1]
