"""What observers of a live job knew about its ranks when they collected the evidence (`ranks.json`, from guard and watch).

    {"schema": "forkpoint.ranks/1", "world_size": 4, "still_s": 12.5, "stalled": true,
     "ranks": [{"rank": 2, "state": "gone", "says": "seen by rank 1"}, ...],
     "groups": [{"name": "1", "desc": "dp", "ranks": [0, 2]}], "steps": [{"group": "0", "step": 7, "rank": 2, "calls": 41}]}

It states what dumps cannot: whose process ended, who belongs to a group (gloo's dumps do not say), that nothing progressed.
"""

import io
import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from forkpoint.errors import UnreadableInput
from forkpoint.evidence.logs.read import read_log
from forkpoint.evidence.text import clean
from forkpoint.evidence.values import MAX_RANKS, items, pairs, whole, wholes
from forkpoint.model.capture import StepCount
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.world import RANKS_SCHEMA

_ENDED: Final = {
    "gone": (LogKind.KILLED, "its process is gone"),
    "stopped": (LogKind.KILLED, "its process is stopped and does not run"),
    "finished": (LogKind.LEFT, "its program ended in order"),
}


class RankStates(Struct, frozen=True):
    events: tuple[LogEvent, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """(name, members)."""
    world: tuple[int, ...] | None
    steps: tuple[StepCount, ...]


def looks_like_rank_states(head: str) -> bool:
    return head.lstrip().startswith("{") and f'"{RANKS_SCHEMA}"' in head[:200]


def read_rank_states(text: str, name: str) -> RankStates:
    try:
        raw: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{name}: looks like ranks.json, but is not valid JSON; is it truncated?") from error
    top = pairs(raw, MAX_RANKS)
    size = whole(top.get("world_size"))
    return RankStates(
        events=(
            *_stall(top, name),
            *_end(top, name),
            *(e for state in _items(top, "ranks") for e in _events(state, name)),
        ),
        groups=tuple(
            (_text(g.get("name")), tuple(sorted(wholes(g.get("ranks"), MAX_RANKS)))) for g in _items(top, "groups")
        ),
        world=tuple(range(size)) if size and size <= MAX_RANKS else None,
        steps=tuple(step for item in _items(top, "steps") if (step := _step(item, name))),
    )


def _stall(top: Mapping[str, object], name: str) -> tuple[LogEvent, ...]:
    still = top.get("still_s")
    if top.get("stalled") is not True or not isinstance(still, int | float):
        return ()
    return (LogEvent(LogKind.STOOD_STILL, name, 1, None, f"no rank has made progress for {still:.0f} s"),)


def _end(top: Mapping[str, object], name: str) -> tuple[LogEvent, ...]:
    code = whole(top.get("exit_code"))
    kind = LogKind.COMMAND_FAILED if code else LogKind.FINISHED
    text = f"the command that ran the job ended with exit code {code}"
    return () if code is None else (LogEvent(kind, name, 1, None, text),)


def _events(state: Mapping[str, object], name: str) -> tuple[LogEvent, ...]:
    rank, says = whole(state.get("rank")), _text(state.get("says"))
    word = _text(state.get("state"))
    if rank is None:
        return ()
    if word == "raised":
        return read_log(io.BytesIO(says.encode("utf-8", "replace")), name, rank).events
    if word not in _ENDED:
        return ()
    kind, text = _ENDED[word]
    return (LogEvent(kind, name, 1, rank, clean(f"{text} ({says})" if says else text)),)


def _step(item: Mapping[str, object], name: str) -> StepCount | None:
    step, rank, calls = (whole(item.get(key)) for key in ("step", "rank", "calls"))
    if step is None or rank is None or calls is None:
        return None
    return StepCount(name, _text(item.get("group")), step, rank, calls)


def _items(top: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    return [pairs(item, MAX_RANKS) for item in items(top.get(key), MAX_RANKS)]


def _text(value: object) -> str:
    return value[:8000] if isinstance(value, str) else ""
