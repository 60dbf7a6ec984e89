"""Values that must be equal across replicas are not, although all ranks made the same calls.

What it looks like
    A check of replicas (`forkpoint.replicas`) found a parameter, gradient or optimizer state that differs between ranks
    that must hold the same bits. With three or more replicas the vote names the odd one. Or ranks print the same gradient
    norm at every step but different parameter norms, while other such pairs agree in both. Or, before reduction, the
    gradients of one rank alone were NaN or far out of line at some step, with a batch that was harmless elsewhere.

Why it happens
    Hardware: arithmetic or memory of one device is wrong and nothing reports it. Software: a rank skipped an update, is
    one step behind, holds its parameters in another order, or loaded another checkpoint. Both have this cause, because the
    values are what is wrong; which of the two it is decides the action. Step counters, stale values or another set of
    tensors indicate software (fix-code); otherwise hardware is suspected (investigate).

What rules it out
    All ranks out of line alike: the data or the optimisation, and no rank. One rank out of line with a batch that nobody
    else had: its GPU or its batch, and nothing shows which. Two replicas that differ: nobody is named. Values that may
    differ (BatchNorm statistics, a local average) are not replicas. A rank that only waits in a collective: a hang has its
    own cause, which goes first.

Fix
    Go back to a checkpoint from before the first wrong step, or send the state of a rank of the majority to all. A node is
    replaced only on two independent signals: the vote or the gradients point at a rank, and in addition there is an Xid of
    its GPU, a recheck that fails again on its device, or gradients that were out of line while the replicas were still equal.
    A flipped parameter also spoils the gradients after it: those are not a second signal.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.cite import DECIDED, LIKELY, STRONG, cite_remark, verb
from forkpoint.judge.facts.machines import XidOrigin, find_gpu_faults
from forkpoint.judge.facts.printed_state import PartedReplicas, find_odd_restored, find_parted_replicas
from forkpoint.judge.facts.printed_values import find_odd_hash
from forkpoint.judge.facts.symptom import hang_is_shown, stands_still
from forkpoint.judge.facts.values import (
    FirstOutOfLine,
    Vote,
    cite_out_of_line,
    cite_vote,
    describe_out_of_line,
    find_first_out_of_line,
    find_vote,
)
from forkpoint.model.headline import first_words, plain_ranks, with_endings
from forkpoint.model.incident import Incident
from forkpoint.model.values import DesyncKind
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "silent-corruption"
_SHOWN = 3
_PERSISTENT = "persistent"
"""For a recheck: the device reproduces a result that a peer does not get."""

Signal = tuple[str, tuple[Evidence, ...]]
"""In words, with its evidence."""


def find(incident: Incident) -> Iterator[Finding]:
    values = incident.capture.values
    if not values:
        yield from _of_printed(incident)
        return
    vote, first = find_vote(values), find_first_out_of_line(values)
    if vote is not None:
        yield replace(_of_vote(vote, first, incident), headlines=_headlines(vote))
    elif first is not None and first.named is not None:
        plain = f"the gradients of rank {first.named} alone were abnormal at step {first.step}, and its data do not explain it"
        yield replace(_of_gradients(first, first.named, incident), headlines=(plain,))


def _of_printed(incident: Incident) -> Iterator[Finding]:
    """From values that training code itself printed. They do not show whether software or hardware caused the
    difference.
    """
    if incident.divergence is not None and (hang_is_shown(incident) or stands_still(incident)):
        return  # otherwise its dumps were taken in the middle of calls
    odd = find_odd_hash(incident)
    if odd is not None:
        told = f"{odd.name} of rank {odd.rank} differs from that of all others, which agree, from step {odd.step} on"
        remedy = _hardware(f"from before step {odd.step}", (odd.rank,), decided=False)
        unclear = "software or hardware: the printed checksums do not tell"
        finding = _finding(f"{told}; {unclear}", (odd.rank,), LIKELY, Action.INVESTIGATE, odd.evidence, remedy)
        plain = f"rank {odd.rank} printed another checksum than all the others from step {odd.step} on"
        yield replace(finding, headlines=(plain,))
    elif (parted := find_parted_replicas(incident)) is not None:
        yield _of_parted_replicas(parted, incident)


def _of_parted_replicas(parted: PartedReplicas, incident: Incident) -> Finding:
    """Replicas that reduce their gradients together but hold different parameters: ranks that started from another
    checkpoint are to blame.
    """
    who = name_ranks(parted.ranks)
    told = f"{who} print equal gradients and another {parted.name} each, from step {parted.step} on; other replicas agree in both"
    restored = find_odd_restored(incident) if parted.odd else None
    plain = f"{plain_ranks(parted.ranks)} are replicas and hold different parameters from step {parted.step} on"
    if restored is None and parted.odd:
        own = f"{name_ranks(parted.odd)} {verb(parted.odd, 'prints', 'print')} another {parted.name} than the other replicas"
        says = f"{own}, which agree, from step {parted.step} on, {parted.why}"
        remedy = _hardware(f"from before step {parted.step}", parted.odd, decided=False)
        plain = f"{plain_ranks(parted.odd)} {verb(parted.odd, 'holds', 'hold')} other parameters than all other replicas from step {parted.step} on"
        finding = _finding(says, parted.odd, LIKELY, Action.INVESTIGATE, parted.evidence, remedy)
        return replace(finding, headlines=(plain,))
    if restored is None:
        remedy = _hardware(f"from before step {parted.step}", (), decided=False)
        finding = _finding(
            f"{told}; nothing says which is right", (), LIKELY, Action.INVESTIGATE, parted.evidence, remedy
        )
        return replace(finding, headlines=(plain,))
    fixes = (
        Fix("load the same checkpoint on all ranks: agree on its step first, and fail if a rank does not have it"),
        Fix("go back to the checkpoint that all ranks had, and train again from there"),
    )
    probes = (Probe("print a checksum of the parameters on every rank right after a checkpoint is loaded"),)
    cited = (*restored.evidence, *parted.evidence)
    finding = _finding(f"{restored.told}; {told}", parted.odd, LIKELY, Action.FIX_CODE, cited, (probes, fixes, ()))
    return replace(finding, headlines=(restored.told, plain))


def _of_vote(vote: Vote, first: FirstOutOfLine | None, incident: Incident) -> Finding:
    cited = cite_vote(vote, incident.capture.values)
    if vote.kind is DesyncKind.SOFTWARE:
        return _finding(f"{_describe(vote)}; {_why(vote)}", vote.odd, STRONG, Action.FIX_CODE, cited, _software(vote))
    second: list[Signal] = []
    if vote.kind is DesyncKind.SUSPECTED_HARDWARE and len(vote.odd) == 1:
        second = [*_signals_of_device(vote.odd[0], incident), *_signal_before(vote, first, incident)]
    sure = STRONG if vote.kind is DesyncKind.SUSPECTED_HARDWARE and not vote.disputed else LIKELY
    good = f"from step {vote.equal_until[1]} or earlier" if vote.equal_until else f"from before step {vote.step}"
    told = _describe(vote) if second else f"{_describe(vote)}; {_why(vote)}"
    return _of_device(told, (good, vote.odd), sure, cited, second)


def _of_gradients(first: FirstOutOfLine, rank: int, incident: Incident) -> Finding:
    told = f"{describe_out_of_line(first)}; {first.data_is_innocent}, so it is not the data"
    cited = cite_out_of_line(first, incident.capture.values)
    return _of_device(
        told, (f"from before step {first.step}", (rank,)), LIKELY, cited, _signals_of_device(rank, incident)
    )


def _of_device(
    told: str, where: tuple[str, tuple[int, ...]], sure: float, cited: tuple[Evidence, ...], second: list[Signal]
) -> Finding:
    """A device is suspected, with or without a second signal. `where`: which checkpoints are good, and the ranks."""
    summary = "; ".join([told, *(says for says, _ in second)])
    evidence = (*cited, *(e for _, shown in second for e in shown))
    action, confidence = (Action.REPLACE_NODE, DECIDED) if second else (Action.INVESTIGATE, sure)
    return _finding(summary, where[1], confidence, action, evidence, _hardware(*where, decided=bool(second)))


def _signals_of_device(rank: int, incident: Incident) -> list[Signal]:
    """Further evidence against the GPU of this rank."""
    found: list[Signal] = []
    fault = find_gpu_faults(incident).get(rank)
    if fault is not None and fault.origin is XidOrigin.HARDWARE and fault.timely:
        found.append((fault.told, (cite_remark(fault.remark, rank),)))
    told = [r for log in incident.capture.values.replicas for r in log.rechecks if r.result == _PERSISTENT]
    if told and {r.deviates for r in told} == {rank}:
        recheck = told[0]
        says = f"a recheck fails again on its device: {recheck.why}"
        found.append((says, (Evidence(recheck.file, recheck.rank, f"line {recheck.line}", says),)))
    return found


def _signal_before(vote: Vote, first: FirstOutOfLine | None, incident: Incident) -> list[Signal]:
    """The rank was out of line before its values differed, so the difference is not the reason."""
    equal = vote.equal_until[1] if vote.equal_until else None
    if first is None or equal is None or first.named not in vote.odd or first.step > equal:
        return []
    says = f"{describe_out_of_line(first)}, and replicas were still equal at step {equal}"
    return [(says, cite_out_of_line(first, incident.capture.values))]


def _describe(vote: Vote) -> str:
    tensors = ", ".join(m.what for m in vote.mismatches[:_SHOWN])
    more = f" and {len(vote.mismatches) - _SHOWN} more" if len(vote.mismatches) > _SHOWN else ""
    since = f"; everything was equal at step {vote.equal_until[1]}" if vote.equal_until else ""
    if vote.odd:
        return f"{name_ranks(vote.odd)} held other values than the other replicas at step {vote.step} ({tensors}{more}){since}"
    ranks = name_ranks(sorted({r for m in vote.mismatches for r in m.ranks}))
    unnamed = "the files do not agree on it" if vote.disputed else "no majority says which is right"
    return f"replicas on {ranks} differ at step {vote.step} ({tensors}{more}), and {unnamed}{since}"


def _headlines(vote: Vote) -> tuple[str, ...]:
    ranks = vote.odd or tuple(sorted({rank for m in vote.mismatches for rank in m.ranks}))
    held = "held other values than the other replicas" if vote.odd else "hold replicas that differ"
    since = f"; all was equal at step {vote.equal_until[1]}" if vote.equal_until else ""
    why = first_words(_why(vote).partition(" (")[0].partition(";")[0].rpartition(": ")[2])
    software = vote.kind is DesyncKind.SOFTWARE
    reason = (
        f"; {why}"
        if software and why
        else "; its hardware is suspected"
        if vote.kind is DesyncKind.SUSPECTED_HARDWARE
        else ""
    )
    first = first_words(vote.mismatches[0].what)
    where = f" ({first})" if first and " " in first and len(vote.mismatches) == 1 else ""
    main = f"{plain_ranks(ranks)} {held} at step {vote.step}"
    return (f"{main}{where}{since}{reason}", *with_endings(main, reason, since))


def _why(vote: Vote) -> str:
    return next((m.why for m in vote.mismatches if m.kind is vote.kind and m.why), "nothing says why")


Remedy = tuple[tuple[Probe, ...], tuple[Fix, ...], tuple[str, ...]]


def _software(vote: Vote) -> Remedy:
    probes = (Probe("print rank, step and whether the update ran, before and after optimizer.step() on every rank"),)
    fix = f"let every rank make the same updates up to step {vote.step}: agree on a skipped step before it (consensus.any_rank)"
    return probes, (Fix(fix), Fix("then send the state of a rank of the majority to all, or load one checkpoint")), ()


def _hardware(good: str, ranks: tuple[int, ...], *, decided: bool) -> Remedy:
    who = name_ranks(ranks) if ranks else "the ranks that differ"
    probe = Probe(f"replicas.recheck() on {who} and a peer: transient, on this device alone, or everywhere")
    back = Fix(f"go back to a checkpoint {good}; save none from {who}")
    out = Fix(f"take the node of {who} out")
    later = Fix(f"if a recheck fails again on the device of {who}, take its node out")
    fixes = (out, back) if decided else (back, later)
    return (probe,), fixes, (f"dcgmi diag -r 3 on the node of {who} (passing does not clear it)",)


def _finding(
    summary: str,
    suspects: tuple[int, ...],
    confidence: float,
    action: Action,
    evidence: tuple[Evidence, ...],
    remedy: Remedy,
) -> Finding:
    probes, fixes, wanted = remedy
    return Finding(
        detector=NAME,
        cause=Cause.SILENT_CORRUPTION,
        suspects=suspects,
        confidence=confidence,
        summary=summary,
        action=action,
        evidence=tuple(dict.fromkeys(evidence)),
        probes=probes,
        fixes=fixes,
        next=wanted,
    )
