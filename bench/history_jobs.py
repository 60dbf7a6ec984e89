"""Incidents of a made-up fleet, as verdicts with stacks and places: five forks that recur, two bad GPUs, and noise.

Every incident comes from its number and a seed alone, so that a writer that was killed makes the same one again. A fork that
recurs does so in another job each time: with shifted lines, moved and renamed files, other groups, other sizes.
"""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from forkpoint.history.incident import JobFacts, KeptIncident, describe_incident
from forkpoint.model.capture import Capture
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Cohort, Divergence, PartingKind, Role
from forkpoint.model.op import Frame, OpState, Stack
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces
from forkpoint.model.verdict import Action, Cause, Coverage, Evidence, Moment, Source, Symptom, Verdict
from forkpoint.model.world import ProcessGroup, RankPlace

HOSTS: Final = 300
GPUS: Final = 8
BAD: Final = (("node-041", 3), ("node-207", 6))
START: Final = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp())
WEEK_S: Final = 7 * 86_400
_TORCH: Final = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


@dataclass(frozen=True, slots=True)
class _Bug:
    cause: Cause
    op: str
    group: str
    left: tuple[str, ...]
    """Functions of the suspects, innermost first."""
    stayed: tuple[str, ...]


FORKS: Final = (
    _Bug(
        Cause.DIVERGENT_PATH,
        "all_reduce",
        "dp",
        ("log_metrics", "train_step", "fit"),
        ("reduce_grads", "train_step", "fit"),
    ),
    _Bug(
        Cause.DIVERGENT_PATH, "all_reduce", "dp", ("save", "maybe_save", "fit"), ("reduce_grads", "train_step", "fit")
    ),
    _Bug(Cause.ORDER_INVERSION, "all_gather", "tp", ("gather_kv", "forward"), ("gather_logits", "forward")),
    _Bug(Cause.METADATA_MISMATCH, "broadcast", "pp", ("send_shape", "next_stage"), ("send_shape", "next_stage")),
    _Bug(Cause.HOST_STALL, "barrier", "default_pg", ("read_shard", "next_batch", "fit"), ("wait_all", "fit")),
)
"""The first two differ in the suspects' functions alone."""
_HARDWARE: Final = (
    (Cause.GPU_STALL, Action.FIX_CODE_OR_HARDWARE),
    (Cause.TRANSPORT, Action.REPLACE_OR_RETRY),
    (Cause.RANK_LOST, Action.REPLACE_NODE),
)


@dataclass(frozen=True, slots=True)
class Planted:
    """An incident, and what is true of it."""

    incident: KeptIncident
    fork: int | None
    """Which of `FORKS`."""
    bad: int | None
    """Which of `BAD`."""


def plant(number: int, seed: int = 1) -> Planted:
    chance = random.Random(f"{seed}/{number}")
    kind = chance.random()
    if kind < 0.40:
        fork = chance.randrange(len(FORKS))
        return Planted(_incident(number, chance, FORKS[fork], Action.FIX_CODE), fork, None)
    cause, action = chance.choice(_HARDWARE)
    anywhere = _Bug(cause, chance.choice(("all_reduce", "all_gather")), "dp", *_some_functions(chance))
    if kind < 0.46:
        bad = chance.randrange(len(BAD))
        return Planted(_incident(number, chance, anywhere, action, BAD[bad]), None, bad)
    if kind < 0.56:  # one job that is tried again and again on the same nodes: all its attempts count once
        return Planted(_retried(number, chance, seed, action), None, None)
    if kind < 0.80:
        return Planted(_incident(number, chance, anywhere, action), None, None)
    once = _Bug(Cause.DIVERGENT_PATH, "all_reduce", "dp", (f"only_{number}", "fit"), ("train_step", "fit"))
    return Planted(_incident(number, chance, once, Action.FIX_CODE), None, None)


def _retried(number: int, chance: random.Random, seed: int, action: Action) -> KeptIncident:
    job = number % 9
    same = random.Random(f"{seed}/retried/{job}")
    culprit = (f"node-{same.randrange(HOSTS):03}", same.randrange(GPUS))
    bug = _Bug(Cause.RANK_LOST, "all_reduce", "dp", (f"eval_{job}", "fit"), ("train_step", "fit"))
    return _incident(number, chance, bug, action, culprit, job=f"retried-{job}")


def _some_functions(chance: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    model = chance.choice(("llama", "moe", "vit", "whisper", "dit", "bert"))
    return (f"{model}_forward", "train_step", "fit"), (f"{model}_backward", "train_step", "fit")


def _incident(
    number: int,
    chance: random.Random,
    bug: _Bug,
    action: Action,
    culprit: tuple[str, int] | None = None,
    job: str | None = None,
) -> KeptIncident:
    hosts = [f"node-{host:03}" for host in chance.sample(range(HOSTS), chance.choice((2, 4, 4, 8, 16)))]
    if culprit and culprit[0] not in hosts:
        hosts[chance.randrange(len(hosts))] = culprit[0]
    suspect = hosts.index(culprit[0]) * GPUS + culprit[1] if culprit else chance.randrange(len(hosts) * GPUS)
    at = START + chance.randrange(WEEK_S)
    places = tuple(
        RankPlace(rank, hosts[rank // GPUS], rank % GPUS, f"0000:{rank % GPUS:02x}:00.0", f"log_{rank}.txt", 12)
        for rank in range(len(hosts) * GPUS)
    )
    tables = SharedTables()
    capture = Capture(Traces.of((), tables), Tables({}, {}, {}), places=places)
    facts = JobFacts(
        job or f"pretrain-{chance.randrange(400)}",
        chance.choice(("ada", "lin", "sam")),
        f"{chance.getrandbits(160):040x}",
        f"run-{number}",
    )
    found = describe_incident(_verdict(chance, bug, action, suspect, len(places), at), capture, facts)
    assert found is not None
    return found


def _verdict(chance: random.Random, bug: _Bug, action: Action, suspect: int, world: int, at: int) -> Verdict:
    ranks = tuple(range(world))
    folder = chance.choice(("/home/ada/proj", "/scratch/job_17/src", "/workspace", "/mnt/code/v2/trainer"))
    left, stayed = (_stack(chance, folder, names) for names in (bug.left, bug.stayed))
    desc = (
        bug.group
        if bug.group == "default_pg"
        else chance.choice((f"mesh_{bug.group}", bug.group, f"{bug.group}_{chance.randrange(4)}"))
    )
    seq = chance.randrange(10, 90_000)
    fork = Divergence(
        how=PartingKind.ABSENCE,
        group=ProcessGroup(str(chance.randrange(1, 40)), desc, ranks),
        channel=None,
        seq=seq,
        first_visible_seq=seq,
        hang_seq=seq,
        cohorts=(
            Cohort(
                tuple(r for r in ranks if r != suspect),
                Role.WAITING,
                bug.op,
                ((chance.randrange(1, 99),),),
                ("Float",),
                OpState.SCHEDULED,
                stayed,
            ),
            Cohort((suspect,), Role.ELSEWHERE, bug.op, ((2,),), ("Float",), OpState.SCHEDULED, left),
        ),
        odd=(suspect,),
        sides=(),
    )
    timeout_s = chance.choice((600, 1200, 1800))
    told = f"Rank {suspect} left {bug.op} of {desc} at {left[1].filename.rsplit('/', 1)[-1]}:{left[1].line}."
    return Verdict(
        symptom=Symptom.WATCHDOG_TIMEOUT,
        cause=bug.cause,
        confidence=0.9,
        action=action,
        suspects=(suspect,),
        summary=told,
        headline=told,
        divergence=fork,
        coverage=Coverage(world, world, world, 0),
        moments=(_moment(at - timeout_s, Source.RECORDER, "issued"), _moment(at, Source.LOG, "watchdog-timeout")),
    )


def _stack(chance: random.Random, folder: str, names: tuple[str, ...]) -> Stack:
    """Lines of any number, in files of any name: a commit later, after a move."""
    files = [
        f"{folder}/{chance.choice(('', 'core/', 'engine/loops/'))}{chance.choice(('train', 'loop', 'trainer_v2'))}.py"
        for _ in names
    ]
    own = [Frame(name, file, chance.randrange(10, 900)) for name, file in zip(names, files, strict=True)]
    return (
        Frame("all_reduce", _TORCH, 2810),
        *own,
        Frame("main", f"{folder}/main.py", 60),
        Frame("<module>", f"{folder}/main.py", 70),
    )


def _moment(at: int, source: Source, kind: str) -> Moment:
    utc = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = Evidence("log_0.txt", 0, "line 1", kind)
    return Moment(
        utc,
        None,
        bound=False,
        utc=utc,
        clock="UTC",
        source=source,
        kind=kind,
        ranks=(0,),
        host=None,
        says=kind,
        evidence=said,
    )
