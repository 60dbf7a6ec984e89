"""Start-up: ranks are missing at rendezvous or at the creation of a communicator.

What it looks like
    No rank has finished a collective; logs say "3/4 clients joined", that the communicator's id never came, or that the
    store cannot be reached, while rank 0, which hosts it, is elsewhere; or the store was asked in vain for the address of
    one rank (the last number of "keys: /default_pg/0//cpu//0/3"). Ranks that print this are those that did join: if exactly
    as many ranks are known to have reached the store as it counts, all others are missing, and so are those that could not
    reach it. Or a group that is created later fails: every rank is in new_group, and a member's key never came. Or
    torchrun's agents did not all meet: one of them says that its rendezvous timed out before any worker was started.

Why it happens
    A process that did not start, a wrong address or port, a wrong world size, a node that is down, an exception before
    init_process_group on one rank. new_group called by the members only: groups are named by a counter, so ranks that skip
    one create the next one under its name.

What rules it out
    Any collective that all ranks finished: then they had joined. A rank that is outside new_group while others create a
    group: it may be stuck there. Missing addresses of two ranks, one in a smaller group, or one of a rank that itself
    waits: nobody is named.

Fix
    Start the missing ranks; check MASTER_ADDR, MASTER_PORT, WORLD_SIZE on their nodes, and their own logs. Call
    new_group on all ranks, in the same order. For agents: the same --rdzv-id, --rdzv-endpoint and --nnodes on all nodes.
"""

import re
from collections.abc import Iterator

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.judge.facts.blame import is_connecting
from forkpoint.judge.facts.cite import LIKELY, STRONG, WEAK, cite_event, cite_remark, cite_stack, verb
from forkpoint.judge.facts.departures import Departure, find_departed
from forkpoint.judge.facts.late_ranks import is_quiet
from forkpoint.judge.facts.machines import find_unanswering
from forkpoint.judge.facts.stacks import is_communicating, is_making_group
from forkpoint.judge.hypotheses.asking import stack_of
from forkpoint.judge.telling.phrases import others, raised
from forkpoint.model.capture import LiveStack
from forkpoint.model.frames import bare_name, user_frames
from forkpoint.model.headline import plain_place, plain_ranks, quoted, with_endings
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "never-joined"
STORE_HOST = 0
"""In torch's own rendezvous, rank 0 hosts the store."""
_OF_ITS_OWN = (Departure.DIED, Departure.RAISED, Departure.KILLED)
_JOINED = re.compile(r"(\d{1,7})/(\d{1,7}) clients joined")
_PORT_OF_STORE = re.compile(r"remote=[^,)]{1,100}:(\d{1,5})\)")
_KEY_OF_RANK = re.compile(r"/default_pg/0//\w{1,12}//\d{1,7}/(\d{1,7})")
"""The key under which a rank publishes its address in gloo's first group, which contains all ranks."""


def find(incident: Incident) -> Iterator[Finding]:
    if any(t.entries or t.cut for t in incident.timeline.traces.values()):
        yield from _group_not_made(incident)
        return
    # A communicator can also be created later, for two ranks: only the rendezvous of all ranks counts.
    counted = [e for e in incident.capture.events if e.kind is LogKind.RENDEZVOUS and _JOINED.search(e.text)]
    events = [e for e in counted if not e.is_of_agent]
    waiting, elsewhere = _by_stack(incident)
    if events:
        missing = _missing(events, incident)
    elif (failed := _failed_before(incident)) and (events := _meeting(failed, incident)):
        missing = failed
    elif events := _seeking_store(elsewhere, incident):
        missing = (STORE_HOST,)
    elif (keyed := _find_keyed(incident)) is not None:
        missing, events = keyed
    elif is_connecting(incident) and waiting and elsewhere:
        missing = tuple(s.rank for s in elsewhere)
    else:
        yield from _agents_not_met(incident)
        return
    yield _job_not_joined(missing, events, (*elsewhere[:2], *waiting[:2]), incident)


def _job_not_joined(
    missing: tuple[int, ...], events: list[LogEvent], stacks: tuple[LiveStack, ...], incident: Incident
) -> Finding:
    size = _size(events, incident)
    named = missing if len(missing) <= size // 2 else ()
    unanswering = {r: remark for r, remark in find_unanswering(incident, size).items() if r in named}
    own = {d.rank: d.event for d in find_departed(incident) if d.rank in named and d.event}
    supported = bool(named) and named in (tuple(unanswering), tuple(own))
    told = f"{name_ranks(named)} did not join the job" if named else "not all ranks joined the job"
    return Finding(
        detector=NAME,
        cause=Cause.NEVER_JOINED,
        suspects=named,
        confidence=STRONG if supported else LIKELY if named else WEAK,
        summary=f"{told}, and no collective was done",
        action=Action.INVESTIGATE,
        evidence=(
            *(cite_event(e) for e in (*list(own.values())[:2], *events[:4])),
            *(cite_stack(s) for s in stacks),
            *(cite_remark(remark, rank) for rank, remark in list(unanswering.items())[:2]),
        ),
        divergence=_first_slot(named, tuple(range(size)) or incident.timeline.world),
        probes=(Probe("on each node: is the process there, and does it reach MASTER_ADDR:MASTER_PORT?"),),
        fixes=(_fix(named, stacks),),
        next=(stack_of(named, incident) if _seen(named, stacks) else "the log of each rank that printed nothing",),
        headlines=_headlines(named, stacks, own, incident),
    )


def _fix(named: tuple[int, ...], stacks: tuple[LiveStack, ...]) -> Fix:
    if (seen := _seen(named, stacks)) is not None:
        who, place = f"rank {seen.rank}", plain_place(seen.stack)
        return Fix(f"limit what {who} waits for at {place}, or do it before the job is started")
    return Fix("start the missing ranks with the same WORLD_SIZE and address; see their own logs first")


def _seen(named: tuple[int, ...], stacks: tuple[LiveStack, ...]) -> LiveStack | None:
    """A missing rank that is there: its stack shows what it does instead."""
    return next((s for s in stacks if s.rank in named and plain_place(s.stack)), None)


def _agents_not_met(incident: Incident) -> Iterator[Finding]:
    """An agent waited in vain at the first rendezvous. At a later one, other agents may have left because a worker had
    failed; and if a rank has logged anything, workers were started.
    """
    failed = [e for e in incident.capture.events if e.is_failure]
    told = [e for e in failed if e.detail("class") == "RendezvousTimeoutError" or _is_count_of_agent(e)]
    began_again = any(bare_name(frame) == "_restart_workers" for e in told for frame in e.stack)
    before = any(e.line < own.line for own in told for e in failed if e.file == own.file)
    if not told or began_again or before or incident.capture.stacks or any(e.rank is not None for e in failed):
        return
    yield Finding(
        detector=NAME,
        cause=Cause.NEVER_JOINED,
        suspects=(),
        confidence=LIKELY,
        summary="not all nodes came to the rendezvous of the launchers: it timed out before any worker was started",
        action=Action.INVESTIGATE,
        evidence=tuple(cite_event(e) for e in told[:4]),
        probes=(Probe("on each node: does torchrun run, and does it reach the address of --rdzv-endpoint?"),),
        fixes=(Fix("start torchrun with the same --rdzv-id, --rdzv-endpoint and --nnodes on all nodes"),),
        next=("the first lines of torchrun's log on each node: run_id, rdzv_endpoint, min_nodes",),
        headlines=("not all nodes came to torchrun's rendezvous; it timed out before any worker was started",),
    )


def _is_count_of_agent(event: LogEvent) -> bool:
    """In a static rendezvous: `2/3 clients joined`, of nodes."""
    return event.is_of_agent and _JOINED.search(event.text) is not None


def _headlines(
    named: tuple[int, ...], stacks: tuple[LiveStack, ...], failed: dict[int, LogEvent], incident: Incident
) -> tuple[str, ...]:
    if not named:
        return ("not all ranks joined the job, and nothing shows which of them did not",)
    joined = [rank for rank in incident.timeline.world if rank not in named]
    own = _seen(named, stacks)
    inside = quoted(bare_name(user_frames(own.stack)[0])) if own else None
    gave_up = any(event.exception and event.rank in joined for event in incident.capture.events)
    who = "it" if own and len(named) == 1 else f"rank {own.rank}" if own else ""
    at = f"{'was' if gave_up else 'is'} still in {inside or 'its own code'}"
    stands = f": {who} {at} ({plain_place(own.stack)})" if own else ""
    waits = "waited" if gave_up else verb(joined, "waits", "wait")
    wait = f"; {others(joined, named, incident)} {waits} for {verb(named, 'it', 'them')} at start-up" if joined else ""
    who, reason = f"{plain_ranks(named)} never joined the job", failed.get(named[0])
    if reason is None or not reason.exception:
        return with_endings(who, stands, wait)
    place = plain_place(reason.stack)
    at = f" at {place}" if place else ""
    return tuple(text for what in raised(reason) for text in with_endings(f"{who}: it raised {what}{at}", wait))


def _seeking_store(elsewhere: list[LiveStack], incident: Incident) -> list[LogEvent]:
    """Log lines of ranks that cannot reach the store, while the rank that hosts it is outside any communication.

    If there are torchrun agents, they may host it themselves; if rank 0 cannot reach the store either, it is not the
    host.
    """
    agents = any(e.kind in (LogKind.AGENT_FAILURE, LogKind.AGENT_STOP) for e in incident.capture.events)
    words = [e for e in incident.capture.events if e.kind is LogKind.RENDEZVOUS and e.detail("remote_host")]
    first = list({e.rank: e for e in reversed(words)}.values())[::-1]
    away = any(s.rank == STORE_HOST for s in elsewhere) and all(e.rank not in (None, STORE_HOST) for e in words)
    return first if away and not agents else []


def _find_keyed(incident: Incident) -> tuple[tuple[int, ...], list[LogEvent]] | None:
    """The rank whose address nobody found in the store, and the ranks that waited for it. Addresses are read in the
    order of ranks, so others behind it may be missing as well. None if two are waited for, or if it waits itself.
    Rank 0 hosts the store and waits there for all others before it publishes its address, so its complete log must
    show no such wait.
    """
    told = [e for e in incident.capture.events if e.kind is LogKind.STORE and e.exception and e.rank is not None]
    keys = {e.rank: found[1] for e in told if (found := _KEY_OF_RANK.fullmatch(e.detail("keys") or ""))}
    missing = {int(key) for key in keys.values()}
    alone = len(missing) == 1 and missing.isdisjoint(keys) and (missing != {0} or is_quiet(0, incident))
    return (tuple(missing), [e for e in told if e.rank in keys]) if alone else None


def _group_not_made(incident: Incident) -> Iterator[Finding]:
    """Every rank was creating a group, and a member's key never came: they create different groups, or one came too
    late.
    """
    told = [e for e in incident.capture.events if e.kind is LogKind.STORE and is_making_group(e.stack)]
    heard = {e.rank for e in told}
    stacks = [s for s in incident.capture.stacks if is_making_group(s.stack)]
    everyone = incident.timeline.world_known and heard | {s.rank for s in stacks} >= set(incident.timeline.world)
    if incident.divergence is not None or not told or not everyone:
        return
    waited = name_ranks(sorted(rank for rank in heard if rank is not None))
    places = dict.fromkeys(place for one in (*told, *stacks) if (place := plain_place(one.stack)))
    at = f" at {' and '.join(places)}" if 0 < len(places) <= 2 else ""
    yield Finding(
        detector=NAME,
        cause=Cause.NEVER_JOINED,
        suspects=(),
        confidence=LIKELY,
        summary=f"a process group could not be created: {waited} waited in vain for a member while every rank was creating a "
        "group; ranks create different groups, or in different orders, or one came too late",
        action=Action.INVESTIGATE,
        evidence=(*(cite_event(e) for e in told[:4]), *(cite_stack(s) for s in stacks if s.rank not in heard)),
        probes=(Probe("print rank and members right before each new_group, on every rank"),),
        fixes=(Fix("call new_group on all ranks, members or not, in the same order"),),
        headlines=(
            f"every rank was creating a process group{at}, and a member never came: they create different groups, or in different orders",
            "every rank was creating a process group, and a member never came: they create different groups",
        ),
    )


def _first_slot(missing: tuple[int, ...], world: tuple[int, ...]) -> Divergence:
    """No collective finished in the default group, so the fork is at its first slot."""
    joined = tuple(r for r in world if r not in missing)
    cohorts = (Cohort(joined, Role.WAITING), *([Cohort(missing, Role.SILENT, where="did not join")] if missing else []))
    return unrecorded_divergence(PartingKind.ABSENCE, cohorts, missing, ranks=world, seq=1)


def _missing(events: list[LogEvent], incident: Incident) -> tuple[int, ...]:
    """Ranks that failed by themselves; or all but those that were connected to the store; or those that could not reach
    it; or those that report no failure. Each only if their number is exactly what the store reports as missing.
    """
    spoke = {e.rank for e in incident.capture.events if e.is_failure}
    counts = _JOINED.search(events[0].text)
    world = range(_size(events, incident))
    expected = len(world) - int(counts[1]) if counts else 0
    if failed := _failed_before(incident):
        return failed if len(failed) == expected else ()
    connected, seeking = _connected(events, incident), _seek_store(incident)
    rest = tuple(r for r in world if r not in connected)
    silent = tuple(r for r in world if r not in spoke)
    # A retry may have succeeded, unless an exception shows that the rank gave up.
    unreached = tuple(sorted({e.rank for e in seeking if e.exception and e.rank is not None}))
    if any(rank in silent and file in incident.capture.cut_logs for file, rank in incident.capture.logs):
        silent = ()  # what it would have logged is cut off
    told = (rest, unreached, () if seeking else silent)
    return next((ranks for ranks in told if ranks and len(ranks) == expected), ())


def _connected(events: list[LogEvent], incident: Incident) -> set[int]:
    """Ranks that waited in the store for others: one of them hosts it and counts, the others asked it for keys. None if
    their lines refer to two stores.
    """
    inside = [e for e in incident.capture.events if e.kind is LogKind.STORE]
    stores = {found[1] for e in inside if (found := _PORT_OF_STORE.search(e.text))}
    ranks = {e.rank for e in (*events, *inside) if e.rank is not None}
    return ranks if len(stores) < 2 else set()


def _seek_store(incident: Incident) -> list[LogEvent]:
    return [e for e in incident.capture.events if e.kind is LogKind.RENDEZVOUS and e.detail("port")]


def _failed_before(incident: Incident) -> tuple[int, ...]:
    """Ranks whose own log reports why they ended: nobody had joined, so that came first."""
    return tuple(d.rank for d in find_departed(incident) if d.how in _OF_ITS_OWN)


def _meeting(failed: tuple[int, ...], incident: Incident) -> list[LogEvent]:
    """The log lines of all other ranks that complain, if each of them does so from inside init_process_group."""
    said = [e for e in incident.capture.events if e.exception and e.rank is not None and e.rank not in failed]
    inside = [e for e in said if any(bare_name(frame) == "init_process_group" for frame in e.stack)]
    return inside if len(inside) == len(said) else []


def _size(events: list[LogEvent], incident: Incident) -> int:
    """The size according to the store, which counts its clients."""
    counts = [int(m[2]) for e in events if (m := _JOINED.search(e.text))]
    return counts[0] if counts else len(incident.timeline.world)


def _by_stack(incident: Incident) -> tuple[list[LiveStack], list[LiveStack]]:
    stacks = incident.capture.stacks
    return [s for s in stacks if is_communicating(s.stack)], [s for s in stacks if not is_communicating(s.stack)]
