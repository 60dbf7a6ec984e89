"""One rank runs out of memory in its forward or backward pass.

What it does
    In the chosen step the outermost module's call, or `backward`, raises `torch.OutOfMemoryError` on the chosen rank,
    with the text of CUDA's allocator.

Where it comes from
    One rank gets the longest sequence, or shares its GPU. fairseq 6c006a34 (the batch is skipped on one rank, which then
    misses the gradients' all_reduce).

When it can happen
    Wherever a model is trained.

A healthy program
    Does not catch it, so that the job ends with a clear error; or agrees with all ranks before it skips the step.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, passes

_SAYS = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB (rehearsed by forkpoint)"
)


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for kind, label in ((UseKind.FORWARD, "forward"), (UseKind.BACKWARD, "backward")):
        for target in passes(calm, kind):
            yield replace(target, settings={"where": label}, label=label)


class _OutOfMemory(Disturbance):
    def forward(self, site: CodeSite | None) -> None:
        self._fail_in("forward", site)

    def backward(self, site: CodeSite | None) -> None:
        self._fail_in("backward", site)

    def _fail_in(self, where: str, site: CodeSite | None) -> None:
        if self.settings["where"] == where and self.is_here(site) and self.is_now():
            self.say(f"it ran out of memory in {where}", site)
            raise self.inside.torch.OutOfMemoryError(_SAYS)


def _install(inside: InsideRank) -> Disturbance:
    return _OutOfMemory(inside)


PERTURBATION = Perturbation("out-of-memory", "out of memory", find, _install, "no module is called in training")
