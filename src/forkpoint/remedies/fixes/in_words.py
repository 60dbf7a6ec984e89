"""What to change, where no patch is known to be safe."""

from forkpoint.bridge.fork import Fork, ForkKind
from forkpoint.model.verdict import Fix
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.together import is_paired, matters
from forkpoint.source.syntax import last_word, shortened

_NO_CALL = "At {where}, look at what only some ranks do here: bound it, or make it ready before the step in which the others wait."
_PAIRED = (
    "At {where}, each rank must make the call{step} exactly once, whichever way it takes through {function}: make it on "
    "all ranks outside the branches."
)
_WORDS = {
    ForkKind.SKIPPED: "At {where}, let every rank make the call{step}, and keep under the condition only what one rank "
    "does with the result; or agree on the condition first (all_reduce of a flag).",
    ForkKind.LEFT: "At {where}, agree on whether to leave before any rank does (all_reduce of a flag), so that all ranks "
    "come to the call{step} or none.",
    ForkKind.LOOP: "At {where}, make the number of rounds the same on all ranks: agree on the smallest before the loop, "
    "drop or repeat the last batches, or use torch.distributed.algorithms.join.Join.",
    ForkKind.CAUGHT: "At {where}, do not pass over the exception on one rank alone: let all ranks know of it (all_reduce "
    "of a flag) at a place that all of them reach before the next collective, and skip the step together.",
    ForkKind.ORDER: "At {where}, issue the calls in one order on all ranks, whatever the data say.",
    ForkKind.ARGUMENT: "At {where}, make what is passed the same on all ranks: agree on the size and pad to it, or take "
    "the value from one rank by broadcast.",
    ForkKind.RAISED: "At {where}, an exception took a rank away from the others: end the job with it (a launcher such as "
    "torchrun does), or agree on what went wrong before the next collective.",
    ForkKind.HELD: "At {where}, bound the wait, or take the work off the path on which the other ranks wait: a thread "
    "with a copy of the data. If it is only slow, give that one wait a longer timeout (a group of its own with "
    "`timeout=`), not the whole job.",
}


def offer(fork: Fork, scene: Scene) -> Fix:
    where = scene.where(fork.function.module, fork.node)
    step = f" of {shortened(last_word(fork.step.call))}()" if fork.step else ""
    return Fix(_words(fork, scene).format(where=where, step=step, function=f"{fork.function.short}()"))


def _words(fork: Fork, scene: Scene) -> str:
    if fork.kind is ForkKind.SKIPPED and not matters(fork, scene.analysis):
        return _NO_CALL
    return _PAIRED if is_paired(fork, scene.analysis) else _WORDS[fork.kind]
