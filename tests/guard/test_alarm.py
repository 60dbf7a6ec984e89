"""An alarm always says something: a decided verdict, or what the guards saw and the likeliest reading of it."""

import json

from forkpoint.guard.overseer import with_content
from forkpoint.guard.summary import Summary
from forkpoint.live.children import Diagnosed
from looping import for_each

SEEN = Summary(still_s=12.0, waiting=3, timeout_s=300.0, waits=(("default_pg#0", 41),), odd=())


def told(cause: str, **document: object) -> Diagnosed:
    return Diagnosed(cause, "investigate", (), 0.0, "the recorder was off", "", json.dumps(document))


@for_each(
    ("hypotheses", "says"),
    [
        ([], "Possibly host-stall: a rank that is busy outside torch.distributed"),
        (
            [{"cause": "rank-lost", "suspects": [2]}, {"cause": "host-stall", "suspects": [1]}],
            "Possibly rank-lost of rank 2",
        ),
    ],
)
def test_an_alarm_that_nothing_decides_says_what_was_seen_and_the_likeliest_reading(
    hypotheses: list[object], says: str
):
    headline = with_content(told("inconclusive", hypotheses=hypotheses), SEEN, 4).headline

    assert headline.startswith("3 of 4 ranks wait at default_pg call 41, nothing moved for 12 s; the others run")
    assert says in headline


def test_a_decided_alarm_says_what_was_decided():
    assert with_content(told("rank-lost"), SEEN, 4).headline == "the recorder was off"
