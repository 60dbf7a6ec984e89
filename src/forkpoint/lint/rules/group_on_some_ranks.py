"""A process group that only some ranks create, or that each rank creates from a list of its own.

`new_group` is collective over *all* ranks of the job, members or not, and all must call it with the same lists in the
same order. If a rank skips it or passes another list, the others wait at start-up.

Create all groups on all ranks, and keep the one that contains this rank.

Not reported: a loop over all groups in which only the result is chosen by rank, and `use_local_synchronization`, which
only members need to call.
"""

from collections.abc import Iterator

from forkpoint.lint.decisions import unequal_branches, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength

CODE = "group-on-some-ranks"
_MAKERS = frozenset({"new_group"})


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        step = unequal.steps[0]
        if step.reach.api.op in _MAKERS and unequal.leaves is None:
            yield violation(
                CODE,
                "all ranks must call new_group, but it is on one side of a branch that can differ by rank",
                unequal.branch.function,
                unequal.branch.node,
                condition=unequal.branch.test,
                reasons=unequal.reasons,
            )
    for function in analysis.communicating():
        for call in function.calls:
            api = analysis.communication.api(call, function)
            if api is None or api.op not in _MAKERS or any(k.arg == "use_local_synchronization" for k in call.keywords):
                continue
            for argument in (*call.args[:1], *(k.value for k in call.keywords if k.arg == "ranks")):
                value = analysis.differences.argument(argument, function)
                reasons = frozenset(
                    r for r in value.reasons if r.origin is Origin.RANK and r.strength is not Strength.POSSIBLE
                )
                if reasons:
                    yield violation(
                        CODE,
                        "new_group is given a list that differs by rank: all ranks must create all groups",
                        function,
                        call,
                        condition=argument,
                        reasons=reasons,
                    )


RULE = LintRule(
    code=CODE,
    title="a process group is not created in the same way by all ranks",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def stage_group(ranks):
    if dist.get_rank() in ranks:
        return dist.new_group(ranks)
""",
    silent_in="""\
import torch.distributed as dist

def stage_group(all_ranks):
    mine = None
    for ranks in all_ranks:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine
""",
)
