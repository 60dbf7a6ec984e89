"""Every line that is known says what it should."""

from forkpoint.evidence.logs import match_line, read_log
from forkpoint.evidence.logs.lines import parse_line
from ingest.logs.sample_lines import SAMPLES, Sample
from looping import for_each

PREFIXES = {
    "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught": (0, "321 02:07:08", None, 0),
    "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught": (None, None, None, 1),
    "[W1115 01:29:29.893830875 socket.cpp:469] [c10d] waitForInput": (None, "1115 01:29:29", None, None),
    "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog": (1, None, None, 1),
    "[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception": (None, None, "default_pg", 1),
    "[PG ID 2 PG GUID 9 Rank 2] ProcessGroupNCCL's": (None, None, None, 2),
    "[PG 1 Rank 0] Exception": (None, None, None, 0),
    "[PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP) Rank 4] ProcessGroupNCCL's": (
        None,
        None,
        "EXPERT_MODEL_PARALLEL_GROUP",
        4,
    ),
}


def test_there_are_as_many_samples_as_were_collected() -> None:
    assert len(SAMPLES) == 161
    assert len({sample.id for sample in SAMPLES}) == 107


@for_each("sample", [s for s in SAMPLES if s.used == "event"], ids=str)
def test_a_line_in_a_log_is_one_event_of_its_kind(sample: Sample) -> None:
    (event,) = read_log(f"{sample.text}\n".encode(), "log", None).events

    assert (event.kind, event.pattern) == (sample.kind, sample.pattern)


@for_each("sample", [s for s in SAMPLES if s.used == "line"], ids=str)
def test_a_line_that_needs_its_place_is_known_when_asked_for(sample: Sample) -> None:
    found = match_line(parse_line(sample.text).message)

    assert found is not None
    assert (found[0].kind, found[0].name) == (sample.kind, sample.pattern)


@for_each("sample", [s for s in SAMPLES if s.used == "prefix"], ids=lambda s: s.text[:30])
def test_a_prefix_tells_rank_time_and_group(sample: Sample) -> None:
    line = parse_line(sample.text)
    group = line.group

    assert (line.speaker.rank, line.time, group and group.desc, group and group.group_rank) == PREFIXES[sample.text]
