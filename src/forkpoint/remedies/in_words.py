"""What to change, if no patch is known to be safe."""

from forkpoint.model.verdict import Fix
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.together import is_paired, matters
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import last_word, shortened

_NO_CALL = "At {where}, look at what only some ranks do: it must make no call that the others do not make, and take no longer than they wait."
_PAIRED = (
    "At {where}, each rank must make the call{step} exactly once, whichever path it takes through {function}: make it on "
    "all ranks, outside the branches."
)
_WORDS = {
    ForkKind.SKIPPED: "At {where}, let every rank make the call{step}, and keep only the use of the result under the "
    "condition; or agree on the condition first (all_reduce of a flag).",
    ForkKind.LEFT: "At {where}, agree on whether to leave before any rank does (all_reduce of a flag), so that all ranks "
    "or none make the call{step}.",
    ForkKind.LOOP: "At {where}, make the number of rounds the same on all ranks: agree on the smallest before the loop, "
    "drop or repeat the last batches, or use torch.distributed.algorithms.join.Join.",
    ForkKind.CAUGHT: "At {where}, do not ignore the exception on one rank only: tell all ranks (all_reduce of a flag) at a "
    "place that all of them reach before the next collective, and skip the step on all of them.",
    ForkKind.ORDER: "At {where}, issue the calls in the same order on all ranks, whatever the data.",
    ForkKind.ARGUMENT: "At {where}, make the argument the same on all ranks: agree on the size and pad to it, or "
    "broadcast the value of one rank.",
    ForkKind.RAISED: "At {where}, a rank raised an exception and left the others: end the whole job (a launcher such as "
    "torchrun does this), or agree on what went wrong before the next collective.",
    ForkKind.THREAD: "At {where}, an exception ended a thread, and the main thread does not know: hand it over (put it in the queue, "
    "or keep the future and call its `result()`), so that the main thread raises it and the launcher ends the job.",
    ForkKind.UNUSED: "At {where}, let every rank use all parameters, whichever way it goes: run the part on an empty or zero "
    "input and add its output times zero to the loss; or wrap the model with find_unused_parameters=True.",
    ForkKind.UNSYNCED: "At {where}, let all ranks reduce gradients in the same backward passes: decide by what all of them "
    "count alike, or agree on the condition first (all_reduce of a flag).",
    ForkKind.STEERED: "At {where}, let all ranks tell the library the same: agree on it first (all_reduce of a flag, or the "
    "smallest number of batches), or let rank 0 decide and broadcast it.",
    ForkKind.HELD: "At {where}, limit the wait, or do the work where no rank waits for this one: before the job's groups "
    "exist, or in one worker process that takes such work in turn. If it is only slow, give that one wait a longer timeout "
    "(a separate group with `timeout=`), not the whole job.",
}


def fix_in_words(fork: Fork, scene: Scene) -> Fix:
    where = scene.where(fork.function.module, fork.node)
    step = f" of {shortened(last_word(fork.step.call))}()" if fork.step else ""
    return Fix(_words(fork, scene).format(where=where, step=step, function=f"{fork.function.short}()"))


def _words(fork: Fork, scene: Scene) -> str:
    if fork.kind is ForkKind.SKIPPED and not matters(fork, scene.analysis):
        return _NO_CALL
    return _PAIRED if is_paired(fork, scene.analysis) else _WORDS[fork.kind]
