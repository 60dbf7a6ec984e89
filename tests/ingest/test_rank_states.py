"""ranks.json: what observers of a live job say of its ranks. Data from a store that anyone can reach."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import InputError
from forkpoint.evidence import read
from forkpoint.evidence.rank_states import looks_like_rank_states, read_rank_states
from forkpoint.model.log import LogKind

RAISED = 'Traceback (most recent call last):\n  File "/job/train.py", line 7, in step\n    raise ValueError(batch)\nValueError: 13\n'


def states(**told: object) -> str:
    return json.dumps({"schema": "forkpoint.ranks/1"} | told)


def kinds(text: str) -> list[tuple[LogKind, int | None]]:
    return [(e.kind, e.rank) for e in read_rank_states(text, "ranks.json").events]


def test_a_process_that_ended_is_told_by_what_is_known_of_its_end() -> None:
    text = states(
        ranks=[
            {"rank": 0, "state": "running"},
            {"rank": 1, "state": "gone", "says": "seen by rank 0"},
            {"rank": 2, "state": "stopped"},
            {"rank": 3, "state": "finished"},
            {"rank": 4, "state": "raised", "says": RAISED},
            {"rank": 5, "state": "silent"},
        ]
    )
    assert kinds(text) == [(LogKind.KILLED, 1), (LogKind.KILLED, 2), (LogKind.LEFT, 3), (LogKind.EXCEPTION, 4)]


def test_the_line_where_a_rank_raised_is_read_from_its_traceback() -> None:
    (event,) = read_rank_states(states(ranks=[{"rank": 4, "state": "raised", "says": RAISED}]), "ranks.json").events
    assert (event.stack[0].filename, event.stack[0].line, event.exception) == ("/job/train.py", 7, "ValueError")


def test_that_nothing_moved_counts_only_where_the_observer_waited_long_enough() -> None:
    assert kinds(states(still_s=400, stalled=True)) == [(LogKind.STOOD_STILL, None)]
    assert kinds(states(still_s=2, stalled=False)) == []


def test_members_are_taken_where_the_name_means_one_group_of_that_rank() -> None:
    told = states(groups=[{"name": "1", "ranks": [0, 1]}, {"name": "1", "ranks": [2, 3]}], world_size=4)
    assert read_rank_states(told, "ranks.json").groups == (("1", (0, 1)), ("1", (2, 3)))


def test_it_is_known_by_its_schema_and_not_by_its_name() -> None:
    assert looks_like_rank_states(states(ranks=[]))
    assert not looks_like_rank_states('{"ranks": []}')


def test_a_file_that_was_cut_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "ranks.json").write_text(states(ranks=[{"rank": 1, "state": "gone"}])[:-5])
    (tmp_path / "log_rank_0.txt").write_text("[rank0]: ValueError: x\n")
    capture = read([str(tmp_path)])
    assert any("not valid JSON" in problem.text for problem in capture.problems)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["rank", "state", "says", "ranks", "groups", "steps", "world_size", "name"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_whatever_stands_under_its_keys_nothing_raises_but_a_clear_error(value: object) -> None:
    text = json.dumps(
        {"schema": "forkpoint.ranks/1", "ranks": value, "groups": value, "steps": value, "world_size": value}
    )
    try:
        read_rank_states(text, "ranks.json")
    except InputError as error:
        pytest.fail(str(error))
