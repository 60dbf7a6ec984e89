"""Scheduled alike everywhere; work before or in the op does not finish on a rank's GPU.

What it looks like
    All members issued the same op, none finishes it. With start events (TORCH_NCCL_ENABLE_TIMING=1) some have started
    and some have not: the streams of those that have not are held by earlier work. Without them no rank can be named.

Why it happens
    A kernel that does not end, a fault of one GPU, a stream waiting for an event that is never recorded.

What rules it out
    A member that did not come (host-stall), different calls (divergent-path), a network error in the logs or the op
    running on every rank (transport), a member that came later than the timeout (straggler).

Fix
    Find the kernel before the op on the rank that has not started (cuda-gdb, compute-sanitizer); check its GPU.
"""

from collections.abc import Iterator

from forkpoint.align.groups import SYNCHRONISING
from forkpoint.detectors.cite import cite_divergence, describe_slot, group_of, has_log
from forkpoint.detectors.confidence import STRONG, WEAK
from forkpoint.detectors.lateness import late_ranks
from forkpoint.detectors.network import network_events
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.incident import Incident
from forkpoint.model.op import OpState
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe, Symptom
from forkpoint.symptom import find_symptom, hang_is_shown, is_finishing

NAME = "gpu-stall"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if (
        divergence is None
        or divergence.how is not PartingKind.STUCK
        or divergence.channel
        or _is_on_cpu(divergence, incident)
    ):
        return
    if not hang_is_shown(incident) or network_events(incident) or late_ranks(divergence, incident):
        return
    if is_finishing(divergence) and find_symptom(incident) is Symptom.NONE:
        return
    timed = all(incident.timeline.traces[r].timed for r in divergence.sides[0])
    held = _not_started(divergence, incident) if timed else ()
    heard = all(has_log(r, incident) for r in divergence.sides[0])
    if not held and (timed or not heard or _has_root(divergence)):
        return  # running everywhere; no logs that would tell of the network; roots that may differ and are not recorded
    told = (
        f"; {name_ranks(held)} never started it: earlier work holds the GPU"
        if held
        else "; start times were not recorded, so no rank can be named"
    )
    yield Finding(
        detector=NAME,
        cause=Cause.GPU_STALL,
        suspects=held,
        confidence=STRONG if held else WEAK,
        summary=f"all members issued {describe_slot(divergence)} alike and it does not finish{told}",
        action=Action.FIX_CODE_OR_HARDWARE,
        evidence=cite_divergence(divergence, incident),
        divergence=divergence,
        probes=(Probe("run once more with TORCH_NCCL_ENABLE_TIMING=1: the rank that stays `scheduled` is the one"),),
        fixes=(Fix("find and bound the kernel that runs before this op; check the GPU's health"),),
        next=()
        if held
        else (
            "TORCH_NCCL_ENABLE_TIMING=1 (costs start events), then diagnose the new dumps",
            "nvidia-smi -q on each node; dmesg | grep -i xid",
        ),
    )


def _is_on_cpu(divergence: Divergence, incident: Incident) -> bool:
    return any(t.comm_lib == "gloo" for r, t in incident.timeline.traces.items() if r in divergence.sides[0])


def _has_root(divergence: Divergence) -> bool:
    return any(c.op not in SYNCHRONISING for c in divergence.cohorts if c.op)


def _not_started(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """With start events `scheduled` means not started. Somebody must have started, or it says nothing."""
    group = group_of(divergence, incident)
    states = {r: t.first_active.state for r in divergence.sides[0] if (t := group.track(r)) and t.first_active}
    if OpState.STARTED not in states.values():
        return ()
    return tuple(sorted(r for r, state in states.items() if state is not OpState.STARTED))
