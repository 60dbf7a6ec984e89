"""The same operation, called from the same place, with arguments that do not fit together.

What it looks like
    At one slot all members called the same operation from the same line, with other sizes or dtypes; an all_to_all
    whose members send more or less than they receive; a message whose two ends differ in size. It may hang, raise, or
    complete with wrong data: NCCL does not check.

Why it happens
    A tensor whose shape depends on local data (a ragged last batch, token counts per expert), a cast on one rank.

What rules it out
    Different lines or operations (divergent-path); the same calls permuted (order-inversion); sizes that may differ
    (gather, scatter, all_to_all that balances).

Fix
    Exchange the sizes first and pad to the largest, or use the form that takes splits; cast on all ranks alike.
"""

from collections.abc import Iterator

from forkpoint.detectors.cite import cite_divergence, describe_slot
from forkpoint.detectors.confidence import STRONG
from forkpoint.detectors.same_call import issuing, may_be_reordered, same_call_site, same_op
from forkpoint.model.divergence import Cohort, Divergence, PartingKind
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe

NAME = "metadata-mismatch"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is None or divergence.shift is not None or not _misfits(divergence, incident):
        return
    called = "; ".join(f"{name_ranks(c.ranks)} {_arguments(c)}" for c in issuing(divergence)[:4])
    op = issuing(divergence)[0].op
    place = next((p for c in divergence.cohorts if (p := user_place(c.stack))), None)
    completed = "" if divergence.hang_seq is not None else "; it completed, with wrong data"
    yield Finding(
        detector=NAME,
        cause=Cause.METADATA_MISMATCH,
        suspects=tuple(sorted(divergence.odd)),
        confidence=STRONG,
        summary=f"{op} at {describe_slot(divergence)}{f' ({place})' if place else ''} does not fit together: {called}{completed}",
        action=Action.FIX_CODE,
        evidence=cite_divergence(divergence, incident),
        divergence=divergence,
        probes=(Probe("print rank, shape and dtype of the tensor right before this call on every rank"),),
        fixes=(Fix("make sizes and dtype equal before the call: exchange the sizes and pad, or pass the splits"),),
    )


def _misfits(divergence: Divergence, incident: Incident) -> bool:
    match divergence.how:
        case PartingKind.METADATA:
            return (
                same_op(divergence)
                and same_call_site(divergence) is True
                and not may_be_reordered(divergence, incident)
            )
        case PartingKind.VOLUME | PartingKind.MESSAGE:
            return bool(issuing(divergence))
        case _:
            return False


def _arguments(cohort: Cohort) -> str:
    return f"{[list(s) for s in cohort.sizes[:4]]} {'/'.join(dict.fromkeys(cohort.dtypes))}"
