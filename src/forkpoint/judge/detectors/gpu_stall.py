"""All ranks scheduled the same op, but work before or inside it does not finish on one rank's GPU.

What it looks like
    All members issued the same op and none finishes it. With start events (TORCH_NCCL_ENABLE_TIMING=1) some have started
    and some have not: the streams of those that have not are blocked by earlier work. Without start events no rank can be
    named. The same applies to a message: one end has started it, and the other has started nothing that is pending.
    Or one rank does not come, and its stack is in a wait for its own GPU. The kernel log of its node may report a fault of
    that GPU (an Xid) at that time: then the rank is named, with the error.

Why it happens
    A kernel that never ends, a fault of one GPU, a stream waiting for an event that is never recorded.

What rules it out
    A member that did not come (host-stall), different calls (divergent-path), a network error in the logs or the op
    running on every rank (transport), a member that came later than the timeout (straggler). A broadcast or another op
    with a root or splits directly before it, if the op follows it for the first time: roots and splits are not recorded,
    and if they differ the next op hangs. An Xid at another time, on another GPU, or that is only a consequence of another
    event is a note. An Xid alone never takes a node out.

Fix
    Find the kernel before the op on the rank that has not started (cuda-gdb, compute-sanitizer); check its GPU.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.blame import cuda_errors, network_events
from forkpoint.judge.facts.calls import holds_past, late_ranks, may_differ_unseen, shares_group_with_thread
from forkpoint.judge.facts.cite import (
    DECIDED,
    LIKELY,
    STRONG,
    WEAK,
    cite_divergence,
    cite_event,
    cite_remark,
    cite_stack,
    describe_slot,
    group_of,
    has_log,
    live_stack,
)
from forkpoint.judge.facts.machines import GpuFault, find_gpu_faults
from forkpoint.judge.facts.recorder_settings import shows_start
from forkpoint.judge.facts.refusal import refused_sizes
from forkpoint.judge.facts.stacks import waits_for_gpu
from forkpoint.judge.facts.symptom import find_symptom, hang_is_shown, is_finishing
from forkpoint.judge.telling.phrases import everyone, shared_call, wait_for
from forkpoint.model.headline import plain_place, plain_ranks, with_endings
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.op import OpState
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe, Symptom
from forkpoint.model.world import name_ranks

NAME = "gpu-stall"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is None or not hang_is_shown(incident):
        return
    if divergence.channel:
        yield from _message_stuck(divergence, divergence.channel, incident)
    elif divergence.how is PartingKind.ABSENCE:
        yield from _host_waits(divergence, incident)
    elif divergence.how is PartingKind.STUCK and not (
        _is_on_cpu(divergence, incident) or shares_group_with_thread(divergence, incident)
    ):
        yield from _op_stuck(divergence, incident)


def _host_waits(divergence: Divergence, incident: Incident) -> Iterator[Finding]:
    """A rank that does not come because its host waits for its own GPU, with all its ops done."""
    stacks = [live_stack(r, incident) for r in divergence.odd]
    if not stacks or divergence.shift:
        return
    faults = _faults(divergence.odd, incident)
    never = f"{name_ranks(divergence.odd)} never issued {describe_slot(divergence)}"
    if all(s is not None and waits_for_gpu(s.stack) for s in stacks):
        finding = _finding(
            divergence, divergence.odd, f"{never}: the host is waiting for its own GPU", STRONG, incident
        )
        place = plain_place(stacks[0].stack if stacks[0] else None)
        plain = f"{plain_ranks(divergence.odd)} {'waits' if len(stacks) == 1 else 'wait'} for {'its' if len(stacks) == 1 else 'their'} own GPU"
        finding = replace(
            finding,
            evidence=(*(cite_stack(s) for s in stacks if s), *finding.evidence),
            headlines=with_endings(
                f"{plain}{f' at {place}' if place else ''}", *wait_for(divergence, divergence.odd, incident)
            ),
        )
        yield _with_faults(finding, faults, failed=True)
    elif len(faults) == len(divergence.odd) and all(cuda_errors(r, incident) for r in divergence.odd):
        finding = _finding(divergence, divergence.odd, f"{never}: calls to the GPU fail there", STRONG, incident)
        failed = [cite_event(cuda_errors(r, incident)[0]) for r in divergence.odd[:4]]
        plain = f"calls to the GPU fail on {plain_ranks(divergence.odd)}"
        endings = wait_for(divergence, divergence.odd, incident)
        finding = replace(finding, evidence=(*failed, *finding.evidence), headlines=with_endings(plain, *endings))
        yield _with_faults(finding, faults, failed=True)


def _op_stuck(divergence: Divergence, incident: Incident) -> Iterator[Finding]:
    if network_events(incident) or late_ranks(divergence, incident):
        return
    if is_finishing(divergence) and find_symptom(incident) is Symptom.NONE:
        return
    timed = all(shows_start(r, incident) for r in divergence.sides[0])
    held = _not_started(divergence, incident) if timed else ()
    heard = all(has_log(r, incident) for r in divergence.sides[0])
    hidden = may_differ_unseen(divergence, incident) or not holds_past(divergence, incident)
    if not held and (timed or not heard or hidden or refused_sizes(incident)):
        return  # the op runs everywhere; no logs that could report a network error; arguments that may differ and are not recorded
    alike = f"all members issued {describe_slot(divergence)} and it does not finish"
    if held:
        summary = f"{alike}; {name_ranks(held)} never started it: earlier work occupies the GPU"
        finding = _finding(divergence, held, summary, STRONG, incident)
        whose = f"the GPU{'s' if len(held) > 1 else ''} of {plain_ranks(held)}"
        began = f"{whose} never started {shared_call(divergence, incident)}, which runs on the others"
        finding = replace(finding, headlines=with_endings(began, ": earlier work there has not finished"))
        yield _with_faults(finding, _faults(held, incident), failed=True)
        return
    faults = [fault for fault in _faults(divergence.sides[0], incident) if fault.timely]
    named = tuple(fault.rank for fault in faults)
    if named and 2 * len(named) < len(divergence.sides[0]):
        finding = _finding(divergence, named, f"{alike}; {name_ranks(named)} had a GPU fault", LIKELY, incident)
        stuck = f"{plain_ranks(named)} had a GPU fault, and {shared_call(divergence, incident)} does not finish on {everyone(divergence, incident)}"
        finding = replace(finding, headlines=(stuck,))
        yield _with_faults(finding, faults, failed=all(cuda_errors(r, incident) for r in named))
        return
    summary = f"{alike}; start times were not recorded, so no rank can be named"
    plain = (
        f"{everyone(divergence, incident)} wait in {shared_call(divergence, incident)}, which does not finish on a GPU"
    )
    finding = _finding(divergence, (), summary, WEAK, incident)
    yield replace(
        finding, headlines=with_endings(plain, "; start times were not recorded, so it is not known on which one")
    )


def _message_stuck(divergence: Divergence, ends: tuple[int, int], incident: Incident) -> Iterator[Finding]:
    """Both ends issued the message, and one has started it: the other's GPU is blocked if it has started nothing else
    either. An op that it had started would block it too, but would wait for a rank.
    """
    if divergence.how is not PartingKind.STUCK or network_events(incident):
        return
    timed = all(shows_start(r, incident) for r in ends)
    stands = {r: incident.timeline.positions[r] for r in ends}
    here = {r: p.op.state for r in ends for p in stands[r] if (p.group, p.channel) == (divergence.group, ends)}
    held = tuple(r for r in ends if all(p.op.state is OpState.SCHEDULED for p in stands[r]))
    if timed and len(held) == 1 and set(here.values()) == {OpState.SCHEDULED, OpState.STARTED}:
        told = f"both ends issued {describe_slot(divergence)}; {name_ranks(held)} never started it: earlier work occupies the GPU"
        place = next((p for c in divergence.cohorts if (p := plain_place(c.stack))), None)
        plain = f"the GPU of {plain_ranks(held)} never started the message {ends[0]}->{ends[1]}{f' ({place})' if place else ''}"
        endings = with_endings(plain, ", which the other end runs: earlier work there has not finished")
        finding = replace(_finding(divergence, held, told, STRONG, incident), headlines=endings)
        yield _with_faults(finding, _faults(held, incident), failed=True)


def _faults(ranks: tuple[int, ...], incident: Incident) -> list[GpuFault]:
    found = find_gpu_faults(incident)
    return [found[rank] for rank in sorted(ranks) if rank in found]


def _with_faults(finding: Finding, faults: list[GpuFault], *, failed: bool) -> Finding:
    """The finding, with what the kernel reports about its suspects' GPUs. `failed`: the ranks' own logs show it too."""
    if not faults:
        return finding
    action = faults[0].action(failed=failed and len(faults) == len(finding.suspects))
    timely = failed and all(fault.timely for fault in faults)
    return replace(
        finding,
        confidence=DECIDED if timely else finding.confidence,
        summary=f"{finding.summary}; {faults[0].told}",
        headlines=tuple(f"{one}; the kernel reports {faults[0].name} there" for one in finding.headlines)
        + finding.headlines,
        action=action,
        evidence=(*(cite_remark(fault.remark, fault.rank) for fault in faults[:4]), *finding.evidence),
        fixes=(Fix(f"forkpoint explain xid{faults[0].remark.xid}: what this error means and who acts on it"),),
    )


def _finding(
    divergence: Divergence, suspects: tuple[int, ...], summary: str, confidence: float, incident: Incident
) -> Finding:
    return Finding(
        detector=NAME,
        cause=Cause.GPU_STALL,
        suspects=suspects,
        confidence=confidence,
        summary=summary,
        action=Action.FIX_CODE_OR_HARDWARE,
        evidence=cite_divergence(divergence, incident),
        divergence=divergence,
        probes=(Probe("run once more with TORCH_NCCL_ENABLE_TIMING=1: the rank that stays `scheduled` is the one"),),
        fixes=(Fix("find and bound the kernel that runs before this op; check the GPU's health"),),
        next=()
        if suspects
        else (
            "TORCH_NCCL_ENABLE_TIMING=1 (costs start events), then diagnose the new dumps",
            "nvidia-smi -q on each node; dmesg | grep -i xid",
        ),
    )


def _is_on_cpu(divergence: Divergence, incident: Incident) -> bool:
    return any(t.comm_lib == "gloo" for r, t in incident.timeline.traces.items() if r in divergence.sides[0])


def _not_started(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """With start events, `scheduled` means not started. It proves something only if another rank has started."""
    group = group_of(divergence, incident)
    states = {r: t.first_active.state for r in divergence.sides[0] if (t := group.track(r)) and t.first_active}
    if OpState.STARTED not in states.values():
        return ()
    return tuple(sorted(r for r, state in states.items() if state is not OpState.STARTED))
