"""A sight as a line, as JSON and as a picture of the terminal."""

import json
from dataclasses import replace
from pathlib import Path

from jsonschema import Draft202012Validator
from rich.console import Console

import verdicts
from forkpoint.live.metrics import WatchMetrics
from forkpoint.live.watch import look
from forkpoint.live.watch.look import SCHEMA, draw, render_json_line, render_line, what_matters
from forkpoint.live.watch.rule import GroupProgress, Sight, WatchNote, WatchState

SIGHT = Sight(
    at="2026-11-15T01:18:27Z",
    state=WatchState.RUNNING,
    why="ranks 0-2 moved since the last look",
    ranks_expected=4,
    ranks_answering=3,
    still_s=0.0,
    groups=(GroupProgress("default_pg", 3, 118, 120, 1),),
    notes=(WatchNote("debug-server", "rank 3 at host:1: no complete answer within 5 s"),),
)
FOUND = replace(
    SIGHT, state=WatchState.FOUND, why=verdicts.FOUND.summary, verdict=verdicts.FOUND, evidence="/kept/0001"
)
HOSTILE = replace(SIGHT, why="\x1b[2J\n\u202e", notes=(WatchNote("paths", "\udcff\x07"),))


def test_a_line_says_state_ranks_and_what_is_missing() -> None:
    assert render_line(SIGHT) == (
        "01:18:27 running: ranks 0-2 moved since the last look; 3 of 4 ranks answer; "
        "debug-server: rank 3 at host:1: no complete answer within 5 s"
    )


def test_the_picture_shows_how_far_groups_are() -> None:
    console = Console(width=100)
    with console.capture() as shown:
        console.print(draw(SIGHT))
        console.print(draw(FOUND))

    assert "default_pg      3    118-120       1" in shown.get()
    assert "forkpoint diagnose --follow-links /kept/0001" in shown.get()


def test_every_sight_is_a_valid_line_of_json() -> None:
    document = json.loads(Path(look.__file__).with_name("watch.schema.json").read_text())
    Draft202012Validator.check_schema(document)

    assert document["properties"]["schema"]["const"] == SCHEMA
    for sight in (SIGHT, FOUND, HOSTILE):
        line = render_json_line(sight)
        Draft202012Validator(document).validate(json.loads(line))
        assert "\n" not in line


def test_nothing_from_input_can_act_on_a_terminal() -> None:
    console = Console(width=100)
    with console.capture() as shown:
        console.print(draw(HOSTILE))

    for text in (shown.get().replace("\n", ""), render_line(HOSTILE), render_json_line(HOSTILE)):
        assert text.isprintable()


def test_ops_that_go_on_are_no_news_but_a_rank_that_falls_silent_is() -> None:
    later = replace(SIGHT, at="2026-11-15T01:18:32Z", why="ranks 0-1 moved", groups=())

    assert what_matters(later) == what_matters(SIGHT)
    assert what_matters(replace(SIGHT, ranks_answering=2)) != what_matters(SIGHT)


def test_an_alarm_is_counted_once_and_source_errors_each_time() -> None:
    metrics = WatchMetrics()
    for sight in (SIGHT, replace(FOUND, is_alarm=True), FOUND):
        metrics.update(sight)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("forkpoint_alarms_total", cause=verdicts.FOUND.cause) == 1
    assert value("forkpoint_source_errors_total", source="debug-server") == 3
    assert value("forkpoint_watch_state", state="found") == 1
    assert value("forkpoint_watch_state", state="running") == 0
