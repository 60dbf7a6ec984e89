"""How much of the job the evidence shows, in words."""

from forkpoint.model.incident import Incident
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
    traces = incident.timeline.traces
    return bool(traces) and not any(t.entries for t in traces.values())


def _unstated(incident: Incident) -> list[str]:
    if incident.timeline.world_known:
        return []
    return [f"how many ranks the job had is not stated: at least {len(incident.timeline.world)}"]


def _missing(incident: Incident) -> list[str]:
    absent = tuple(r for r in incident.timeline.world if r not in incident.timeline.traces)
    return [f"no dump of {name_ranks(absent)}"] if absent and incident.timeline.traces else []


def _values(incident: Incident) -> list[str]:
    heard = incident.capture.values.ranks
    silent = tuple(rank for rank in incident.timeline.world if rank not in heard)
    left_none = f", none of {name_ranks(silent)}" if silent else ""
    return [f"recorded values of {name_ranks(heard)}{left_none}"] if heard else []


def _blind(incident: Incident) -> list[str]:
    early = tuple(sorted(r for r in incident.timeline.blind if not incident.timeline.traces[r].cut))
    return (
        [f"the dump of {name_ranks(early)} was taken before its peers': where it stood is not known"] if early else []
    )


def _stackless(incident: Incident) -> list[str]:
    traces = incident.timeline.traces
    bare = tuple(sorted(r for r, t in traces.items() if t.entries and not t.has_stacks))
    return [f"no stacks in the dump of {name_ranks(bare)}"] if bare else []


def _empty(incident: Incident) -> list[str]:
    empty = tuple(sorted(r for r, t in incident.timeline.traces.items() if not t.entries))
    return [f"no entries in the dump of {name_ranks(empty)}: the recorder was off there"] if empty else []


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
