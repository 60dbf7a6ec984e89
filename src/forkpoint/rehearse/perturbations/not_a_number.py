"""One rank's loss is NaN or infinite.

What it does
    In the chosen step, the output of the outermost module on the chosen rank is multiplied by NaN or infinity, so gradients
    are affected, too: the loss, and everything computed from it, is as it would really be.

Where it comes from
    An overflow in half precision, a division by an empty mask, one corrupt sample.
    ColossalAI 1175 (return on local overflow before a collective), many `if torch.isnan(loss): continue`.

When it can happen
    Wherever a model is trained.

A healthy program
    Lets all ranks decide together whether to skip a step (an all_reduce of the flag), or does not decide at all.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, passes
from forkpoint.rehearse.perturbations.batches import map_tensors


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for target in passes(calm, UseKind.FORWARD):
        for value in ("nan", "inf"):
            yield replace(target, settings={"value": value}, label=value)


class _NotANumber(Disturbance):
    def output(self, site: CodeSite | None, output: Any) -> Any:
        if not self.is_here(site) or not self.is_now():
            return output
        self.say(f"its loss became {self.settings['value']}", site)
        return _spoil(output, float(self.settings["value"]), self.inside.torch)


def _spoil(output: Any, factor: float, torch: Any) -> Any:
    def change(tensor: Any) -> Any:
        return tensor * factor if tensor.is_floating_point() else tensor

    if hasattr(output, "__dict__") and not isinstance(output, (torch.Tensor, dict)):  # a model's output as an object
        for name, value in list(vars(output).items()):
            if isinstance(value, torch.Tensor):
                setattr(output, name, change(value))
        return output
    return map_tensors(output, change, torch)


def _install(inside: InsideRank) -> Disturbance:
    return _NotANumber(inside)


PERTURBATION = Perturbation(
    "not-a-number", "a loss that is not a number", find, _install, "no module is called in training"
)
