"""How much of the job the evidence shows, in words."""

from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Coverage

MAX_REMARKS = 5


def summarise_coverage(incident: Incident) -> Coverage:
    capture = incident.capture
    return Coverage(
        ranks=len(incident.timeline.world),
        dumps=len(capture.traces),
        logs=len(capture.logs),
        stacks=len(capture.stacks),
        notes=(
            *_unstated(incident),
            *_missing(incident),
            *_values(incident),
            *_blind(incident),
            *_stackless(incident),
            *_empty(incident),
            *_places(incident),
            *_remarks(incident),
            *_problems(incident),
        ),
        set_aside=capture.set_aside,
    )


def recorder_was_off(incident: Incident) -> bool:
    """No dump has entries, nor the counters that only a recorder which is on keeps, and ranks had called something."""
    return dumps_are_empty(incident) and has_called(incident)


def dumps_are_empty(incident: Incident) -> bool:
    """There are dumps, and none has entries or counters."""
    traces = incident.timeline.traces
    return bool(traces) and not any(t.entries or t.has_counters for t in traces.values())


def has_called(incident: Incident) -> bool:
    """A log or a stack shows that ranks communicated: without any of it they may not have come so far."""
    events = incident.capture.events
    return bool(incident.capture.stacks) or any(
        e.work or e.kind is LogKind.RECORDER_OFF or e.is_failure for e in events
    )


def without_dumps(incident: Incident) -> tuple[int, ...]:
    """Ranks of which no dump was given. One that was set aside was given."""
    given = {one.rank for one in incident.capture.set_aside} | incident.timeline.traces.keys()
    return tuple(r for r in incident.timeline.world if r not in given)


def _unstated(incident: Incident) -> list[str]:
    if incident.timeline.world_known:
        return []
    return [f"how many ranks the job had is not stated: at least {len(incident.timeline.world)}"]


def _missing(incident: Incident) -> list[str]:
    absent = without_dumps(incident)
    return [f"no dump of {name_ranks(absent)}"] if absent and incident.timeline.traces else []


def _values(incident: Incident) -> list[str]:
    heard = incident.capture.values.ranks
    silent = tuple(rank for rank in incident.timeline.world if rank not in heard)
    left_none = f", none of {name_ranks(silent)}" if silent else ""
    return [f"recorded values of {name_ranks(heard)}{left_none}"] if heard else []


def _blind(incident: Incident) -> list[str]:
    traces = incident.timeline.traces
    hidden = sorted(r for r in incident.timeline.blind if not traces[r].cut and traces[r].entries)
    vague = tuple(r for r in hidden if traces[r].is_partial)
    early = tuple(r for r in hidden if not traces[r].is_partial)
    said = [(early, "was taken before its peers'"), (vague, "leaves out what is done")]
    return [f"the dump of {name_ranks(ranks)} {why}: where it stood is not known" for ranks, why in said if ranks]


def _stackless(incident: Incident) -> list[str]:
    traces = incident.timeline.traces
    bare = tuple(sorted(r for r, t in traces.items() if t.entries and not t.has_stacks))
    return [f"no stacks in the dump of {name_ranks(bare)}"] if bare else []


def _empty(incident: Incident) -> list[str]:
    """What an empty dump means depends on what else it holds: counters are kept only by a recorder that is on."""
    traces = incident.timeline.traces
    empty = [(r, t) for r, t in sorted(traces.items()) if not t.entries]
    counted = tuple(r for r, t in empty if t.has_counters)
    others = tuple(r for r, t in empty if not t.has_counters)
    why = (
        "the recorder was off there"
        if recorder_was_off(incident)
        else "it had called nothing yet, or its recorder was off"
    )
    said = [(counted, "its counters tell how far it came"), (others, why)]
    return [f"no entries in the dump of {name_ranks(ranks)}: {what}" for ranks, what in said if ranks]


def _problems(incident: Incident) -> list[str]:
    return [f"{p.file}: {p.text}" for p in incident.capture.problems]


def _places(incident: Incident) -> list[str]:
    """Of the ranks that differ: a person looks for the machine."""
    odd = set(incident.divergence.odd) if incident.divergence else set[int]()
    told = [
        f"rank {p.rank} ran on {p.host}{'' if p.gpu is None else f' GPU {p.gpu}'}"
        for p in incident.capture.places
        if p.rank in odd
    ]
    return [", ".join(told[:8])] if told else []


def _remarks(incident: Incident) -> list[str]:
    remarks = incident.capture.remarks
    told = [f"{r.host or r.file}: {r.says}" for r in remarks[:MAX_REMARKS]]
    return [*told, f"and {len(remarks) - MAX_REMARKS} more remarks of machines"] if len(remarks) > MAX_REMARKS else told
