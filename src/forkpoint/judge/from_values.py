"""What recorded values say where no detector claims anything: something was out of line and nobody is to blame, or all
that was checked was well.
"""

from forkpoint.detectors.pre_reduction import Departure, cite_departure, describe_departure, find_departure
from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.values import Values
from forkpoint.model.verdict import Action, Cause, Evidence, Finding
from forkpoint.symptom import is_pending

HEALTHY = 0.9
"""As with dumps: what was not checked stays unseen."""


def speak_from_values(incident: Incident) -> Finding | None:
    """None: no values, or the job failed or hung otherwise, which they do not explain."""
    values = incident.capture.values
    failed = any(e.is_failure for e in incident.capture.events)
    if not values or failed or incident.divergence is not None or is_pending(incident):
        return None
    departure = find_departure(values)
    if departure is not None:
        return _undecided(departure, values)
    return _all_well(values) if not incident.timeline.traces else None


def _undecided(departure: Departure, values: Values) -> Finding:
    told = f"{describe_departure(departure)}; {_reading(departure)}"
    cited = cite_departure(departure, values)
    return Finding("undecided", Cause.INCONCLUSIVE, (), 0.0, told, Action.INVESTIGATE, cited, next=_wanted(departure))


def _reading(departure: Departure) -> str:
    if departure.alike:
        return "most ranks alike, so it is the data or the optimisation and no rank"
    if departure.absent:
        return f"{name_ranks(departure.absent)} left no record of that step, and it may have begun there"
    if len(departure.out) == 1:
        return "the others were in line: it is its GPU or its batch, and nothing says which"
    return "the others were in line: it is what these ranks share, a model-parallel group, a node or data"


def _wanted(departure: Departure) -> tuple[str, ...]:
    if departure.absent:
        return (f"the forensics files of {name_ranks(departure.absent)}: forkpoint diagnose DIR",)
    if departure.alike:
        return (f"look at the batches of step {departure.step} and the learning rate there",)
    data = departure.out[0].values.data
    batch = f" (samples {', '.join(map(str, data[:8]))}{', ...' if len(data) > 8 else ''})" if data else ""
    return (f"run the batch of that step{batch} on another rank: replicas.recheck()",)


def _all_well(values: Values) -> Finding | None:
    """None: not every rank is heard to the end, or nothing was compared."""
    cut = any(log.cut for log in (*values.forensics, *values.replicas))
    whole = not cut and values.world is not None and values.ranks == frozenset(range(values.world))
    equal = [(step, line, log) for log in values.replicas for step, line in log.equal]
    if not whole or (values.replicas and not equal):
        return None
    cited: list[Evidence] = []
    said: list[str] = []
    if equal:
        step, line, log = max(equal, key=lambda item: (item[0], -item[2].rank))
        cited.append(Evidence(log.file, log.rank, f"line {line}", f"step {step}: all replicas were equal"))
        said.append(f"replicas were equal at every check up to step {step}")
    if values.forensics:
        first, last = values.forensics[0], values.forensics[0].steps[-1:]
        cited += [Evidence(first.file, first.rank, f"line {s.line}", f"step {s.step}: in line") for s in last]
        said.append("no loss or gradient was out of line before reduction in the steps that are kept")
    told = "; ".join(said)
    return Finding("values", Cause.HEALTHY, (), HEALTHY, told, Action.NONE, tuple(cited))
