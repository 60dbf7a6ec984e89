"""Which ranks were at which call of the program when the job stopped: from recorded calls, else from tracebacks in logs."""

from dataclasses import dataclass, replace

from forkpoint.model.incident import Incident
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Verdict
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.sides import Chain


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call that ranks were in."""

    chain: Chain
    stack: Stack
    waiting: tuple[int, ...]
    cohort: int | None
    failed: tuple[int, ...]
    """Ranks whose log has an exception of this call."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({*self.waiting, *self.failed}))


def find_places(incident: Incident, verdict: Verdict, flow: ProgramFlow) -> list[CallPlace]:
    """Most ranks first: from cohorts, else from their logs, else from tracebacks whose rank is not known."""
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    found: dict[Chain, CallPlace] = {}
    known: set[int] = set()
    for number, cohort in enumerate(cohorts):
        chain = flow.places.chain(cohort.stack)
        if (
            chain and cohort.stack and cohort.op
        ):  # those without an op are not in this call: it is the last one that they made
            known.update(cohort.ranks)
            before = found.get(chain, CallPlace(chain, cohort.stack, (), number, ()))
            found[chain] = replace(before, waiting=(*before.waiting, *cohort.ranks))
    for rank in incident.timeline.world:
        said = () if rank in known else incident.said.get(rank, ())
        stack = next((event.stack for event in said if event.stack and flow.places.chain(event.stack)), None)
        if stack is not None:
            chain = flow.places.chain(stack)
            before = found.get(chain, CallPlace(chain, stack, (), None, ()))
            found[chain] = replace(before, failed=(*before.failed, rank))
    return sorted(found.values(), key=lambda p: (-len(p.ranks), p.ranks)) or _without_ranks(incident, flow)


def _without_ranks(incident: Incident, flow: ProgramFlow) -> list[CallPlace]:
    failures = [e for e in incident.capture.events if e.rank is None and e.is_failure and e.stack]
    chains = {chain: e.stack for e in failures if (chain := flow.places.chain(e.stack))}
    return [CallPlace(chain, stack, (), None, ()) for chain, stack in chains.items()]
