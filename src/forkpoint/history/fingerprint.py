"""Decides which incidents have the same fork: the same cause, functions of user code on both sides, op and kind of group.

Only function names count: lines shift with every commit, files move, and directories differ by user. Numbers of groups and
ranks say nothing either, so a group is identified by its role. If neither side shows user code, there is no fingerprint:
the rest would merge unrelated incidents. If all functions have common names (`main`), the file name, the library function
that is called, and the job's name are added. Two bugs in one function, at the same op and in the same kind of group, have
the same fingerprint: reports say `same fork`, never `same bug`.
"""

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

from forkpoint.model.capture import Capture
from forkpoint.model.frames import bare_name, is_python, short_name, user_frames
from forkpoint.model.incident import Divergence
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import ProcessGroup

_MAX_FRAMES = 5
"""Innermost. Outer frames depend on how a program is started."""
_VERSION = 1
"""Part of the hash: fingerprints of different versions of this rule must not match."""

_MODULE = "<module>"
_EVERYWHERE = frozenset({_MODULE, "main", "_main", "run", "train", "worker", "launch"})
_WRAPPERS = frozenset({"wrapper", "inner", "_fn", "__call__", "_call_impl", "_wrapped_call_impl", "decorate_context"})

_ROLES = (
    ("default", ("default_pg", "default", "world", "global")),
    ("dp", ("dp", "ddp", "data", "replicate", "data_parallel")),
    ("fsdp", ("fsdp", "shard", "dp_shard", "hsdp", "zero")),
    ("tp", ("tp", "mp", "tensor", "model", "tensor_parallel", "tensor_model_parallel")),
    ("pp", ("pp", "pipe", "pipeline", "stage", "pipeline_parallel")),
    ("cp", ("cp", "sp", "context", "sequence", "context_parallel")),
    ("ep", ("ep", "expert", "expert_parallel", "moe")),
    ("embedding", ("embd", "embedding", "position_embedding")),
)
_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    cause: str
    op: str
    role: str
    suspects: tuple[str, ...]
    """Functions of user code on the suspects' side, innermost first."""
    others: tuple[str, ...]

    @property
    def key(self) -> str:
        told = [_VERSION, self.cause, self.op, self.role, self.suspects, self.others]
        return sha256(json.dumps(told).encode()).hexdigest()[:16]

    @property
    def words(self) -> str:
        """`all_reduce (dp) in step < train, while suspects are in save < train`."""
        waits = f" in {' < '.join(self.others)}" if self.others else ""
        left = f"; suspects in {' < '.join(self.suspects)}" if self.suspects and self.suspects != self.others else ""
        return f"{self.op or 'no call'} ({self.role}){waits}{left}"


def find_fingerprint(verdict: Verdict, capture: Capture, job: str | None = None) -> Fingerprint | None:
    """None: no user code is known on either side."""
    fork = verdict.divergence
    suspects = frozenset(verdict.suspects)
    members = frozenset(rank for cohort in fork.cohorts for rank in cohort.ranks) if fork else frozenset[int]()
    sides = [_stack_of(fork, capture, ranks) for ranks in (suspects, members - suspects)]
    left, stayed = (_functions(stack) for stack in sides)
    if not left and not stayed:
        return None
    if all(name in _EVERYWHERE for name in (*left, *stayed)):
        left, stayed = (_with_context(stack, job) for stack in sides)
    role = find_role(fork.group, verdict.coverage.ranks, fork.channel) if fork else "unknown"
    return Fingerprint(verdict.cause, _op(fork, suspects), role, left, stayed)


def _op(fork: Divergence | None, suspects: frozenset[int]) -> str:
    """The op in which the others wait; the suspects' own if nobody else has one."""
    cohorts = (
        sorted(fork.cohorts, key=lambda c: (not suspects.isdisjoint(c.ranks), -len(c.ranks), c.ranks)) if fork else []
    )
    return next((cohort.op for cohort in cohorts if cohort.op), "")


def _stack_of(fork: Divergence | None, capture: Capture, ranks: frozenset[int]) -> Stack:
    """The recorded stack of the call at the fork; else a stack taken while it hung; else a traceback in a log. For ranks that
    did not reach the fork the recorder only has an earlier call, which comes last.
    """
    cohorts = sorted(fork.cohorts if fork else (), key=lambda c: (-len(c.ranks), c.ranks))
    of_ranks = [c for c in cohorts if c.stack and not ranks.isdisjoint(c.ranks)]
    recorded = (c.stack for c in of_ranks if c.stack and c.op)
    before = (c.stack for c in of_ranks if c.stack and not c.op)
    live = (s.stack for s in sorted(capture.stacks, key=lambda s: s.rank) if s.rank in ranks)
    said = (e.stack for e in sorted(capture.events, key=lambda e: (e.file, e.line)) if e.rank in ranks)
    return next((stack for stack in chain(recorded, live, said, before) if _functions(stack)), ())


def _functions(stack: Stack) -> tuple[str, ...]:
    """Recursive calls count once: their depth differs from run to run. `<module>` counts only if there is nothing else."""
    names = [bare_name(frame) for frame in _python(stack)]
    once = [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]
    return tuple([name for name in once if name != _MODULE][:_MAX_FRAMES] or once)


def _with_context(stack: Stack, job: str | None) -> tuple[str, ...]:
    frames = _python(stack)
    if not frames:
        return ()
    within = stack[: stack.index(frames[0])]
    called = [bare_name(frame) for frame in reversed(within) if bare_name(frame) not in _WRAPPERS]
    calls = f" calling {called[0]}" if called else ""
    of_job = f" (job {job})" if job else ""
    return (f"{bare_name(frames[0])} of {short_name(frames[0].filename)}{calls}{of_job}",)


def _python(stack: Stack) -> list[Frame]:
    return [frame for frame in user_frames(stack) if is_python(frame)]


# ---------------------------------------------------------------------------------------------------------------------
# The role of a group: from its description, else from its shape.


def find_role(group: ProcessGroup, world: int, channel: tuple[int, int] | None = None) -> str:
    told = _role_in(group.desc)
    if told:
        return told
    if len(group.ranks) == world or group.name == "0":
        return "default"
    if channel is not None or len(group.ranks) == 2:
        return "pair"
    steps = {after - before for before, after in zip(group.ranks, group.ranks[1:], strict=False)}
    return "neighbours" if steps == {1} else "strided" if len(steps) == 1 else "subgroup"


def _role_in(desc: str) -> str | None:
    """`mesh_dp`, `tp_1`, `DATA_PARALLEL_GROUP`; any other description is used as it is, without its numbers."""
    words = [word for word in _WORDS.findall(desc.lower()) if word not in ("mesh", "group", "pg", "parallel")]
    if words in ([], ["undefined"]):
        return None
    text = "_".join(words)
    exact = next((role for role, names in _ROLES if text in names), None)
    return exact or next((role for role, names in _ROLES if any(word in names for word in words)), text)
