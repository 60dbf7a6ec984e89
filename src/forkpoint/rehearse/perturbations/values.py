"""One rank computes with other values: of its tensors, masks and random numbers."""

import ast
import operator
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any, Final, cast

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.model import HASH_SEED, Calm, CodeSite, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import Disturbance, passes, targets_of
from forkpoint.rehearse.perturbations.batches import map_tensors

_SPIKE = 1000.0
_MAX_BOUNDS = 2


class AnotherValue(Disturbance):
    """A value that a rank reads differs: across the threshold it is compared with, or much larger or smaller.

    What it does
        From the chosen occasion on, the chosen rank reads another number at one line (`.item()`, `float()`, `int()`): just on the
        other side of the threshold that the source compares it with. If there is no such threshold: a thousand times more or less,
        or a thousand times more once, like a spike to a program that compares a value with its own average. A `bool()` is inverted
        once. Many values at once (`.numpy()`, `.tolist()`) that are read while no gradients are recorded, so predictions or labels,
        come in another order: whatever metric is computed from them is another one.

    Where it comes from
        A loss spike, a validation metric of this rank's own shard, no unmasked token in this rank's batch.
        Lightning 2467 (early stopping on each rank's own metric), Lightning 6410 (is this a new best?), TRL 4041 (a return
        where this rank has no token), YOLOv5 8345.

    When it can happen
        Only to values that are local to a rank: they differed between ranks in the calm run, only some ranks read them, or the
        source shows why they can differ. If the members of a process group always read the same, it is changed for all of them.
        An integer is changed only if the source compares it: it may be a size, which must match its tensor.

    A healthy program
        Reduces the value over all ranks before it decides, or lets one rank decide and broadcasts the decision.
    """

    kind = "another-value"
    otherwise = "the program reads no tensor value that is local to a rank"

    @staticmethod
    def find(calm: Calm, decisions: Decisions) -> Iterator[TrialTarget]:
        for by_rank in calm.uses(UseKind.READ).values():
            first = next(iter(by_rank.values()))
            if not first.site.file or not (len(by_rank) < calm.world or _is_local(list(by_rank.values()), decisions)):
                continue
            often = min(use.count for use in by_rank.values())
            agreed = _agreed_in(by_rank, calm)
            alone = tuple(sorted(set(by_rank).difference(*agreed)))
            target = TrialTarget(first.site, alone, first.what, often)
            told = [replace(target, ranks=group[:1], together=group[1:]) for group in agreed]
            for one in [target, *told] if alone else told:
                yield from _changes(first, one, decisions)

    def read(self, site: CodeSite, how: str, value: Any) -> Any:
        to = self.settings["to"]
        if not self.is_here(site, how) or not self.is_due() or (self._told and to in ("not", "times once")):
            return value
        if to == "order":
            self.say("it read its values in another order", site)
            return _rotated(value)
        return value if isinstance(value, list) else self._tell(site, value, self._other(value, to))

    def _other(self, value: Any, to: str) -> Any:
        if to == "not":
            return not value
        if to.startswith("times"):
            return value * float(self.settings["factor"])
        bound = look_up_bound(self.settings["bound"])
        return value if bound is None else across(value, self.settings["operator"], bound)

    def _tell(self, site: CodeSite, before: Any, after: Any) -> Any:
        if after != before:
            self.say(f"it read {after!r:.20} instead of {before!r:.20}", site)
        return after


def _is_local(uses: list[Use], decisions: Decisions) -> bool:
    """The value is local to a rank, not one that all ranks agree on."""
    shared = min(len(use.values) for use in uses)
    differs = any(use.values[:shared] != uses[0].values[:shared] for use in uses)
    site = uses[0].site
    compared = [replace(site, line=bound.line) for bound in decisions.thresholds(site)]
    return differs or any(decisions.is_local(place) for place in (site, *compared))


def _agreed_in(by_rank: dict[int, Use], calm: Calm) -> list[tuple[int, ...]]:
    """Process groups whose members always read the same values, which were not always one value: they have agreed on it, or compute
    the same (a tensor-parallel group), so it cannot differ between them.
    """
    groups = {group for told in calm.ranks for group in told.groups if 1 < len(group) < calm.world}
    found: list[tuple[int, ...]] = []
    for group in sorted(groups, key=lambda group: (-len(group), group)):
        read = {by_rank[rank].values if rank in by_rank else () for rank in group}
        values = next(iter(read))
        if len(read) == 1 and len(set(values)) > 1 and not any(set(group) & set(other) for other in found):
            found.append(group)
    return found


def _changes(use: Use, target: TrialTarget, decisions: Decisions) -> Iterator[TrialTarget]:
    if use.what == "bool":
        yield replace(target, settings={"to": "not"}, label="bool, inverted")
        return
    if "evaluates" in use.facts:
        if use.facts["evaluates"] == "1":
            yield replace(target, settings={"to": "order"}, label=f"{use.what}, in another order")
        return
    found = decisions.thresholds(use.site)[:_MAX_BOUNDS]
    for bound in found:
        settings = {"to": "across", "operator": bound.operator, "bound": bound.bound}
        yield replace(target, settings=settings, label=f"{use.what}, across {bound.bound} of line {bound.line}")
    if not found and any(value != int(value) for value in use.values):
        for to, factor, label in (
            ("times", _SPIKE, "much larger"),
            ("times", 1 / _SPIKE, "much smaller"),
            ("times once", _SPIKE, "much larger, once"),
        ):
            yield replace(target, settings={"to": to, "factor": str(factor)}, label=f"{use.what}, {label}")


def _rotated(values: Any) -> Any:
    """The first comes last: each is one that occurs, and a sum or a size stays what it is."""
    if isinstance(values, list):
        return [*values[1:], *values[:1]]
    return values.take([*range(1, len(values)), 0], axis=0) if values.ndim else values


_HOPS = 8


def across(value: Any, comparison: str, bound: float) -> Any:
    """A nearby value of the same type for which `value comparison bound` has the opposite result."""
    whole = isinstance(value, int)
    step = 1 if whole else abs(bound) * 1e-3 or 1e-3
    edge = int(bound) if whole else bound
    holds = {
        "<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound,
        "==": value == bound, "!=": value != bound,
    }[comparison]  # fmt: skip
    if comparison in ("==", "!="):
        return edge + step if value == bound else type(value)(edge)
    up = holds == (comparison in ("<", "<="))
    return type(value)(edge + step if up else edge - step)


def look_up_bound(bound: str) -> float | None:
    """Evaluates numbers, dotted names in the calling frame of the user's code, and simple arithmetic. Reads attributes from
    `__dict__` only, so that no code of the program runs.
    """
    try:
        return _work_out(ast.parse(bound, mode="eval").body, _asking_frame())
    except (ZeroDivisionError, OverflowError):
        return None


_ARITHMETIC: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _work_out(node: ast.expr, frame: FrameType | None) -> float | None:
    match node:
        case ast.BinOp():
            sides = _work_out(node.left, frame), _work_out(node.right, frame)
            return None if None in sides else _ARITHMETIC[type(node.op)](*cast("tuple[float, float]", sides))
        case ast.UnaryOp():
            value = _work_out(node.operand, frame)
            return None if value is None else -value
        case ast.Constant():
            return float(cast("float", node.value))
        case _:
            value = _find(ast.unparse(node).split("."), frame)
            return float(value) if isinstance(value, int | float) else None


def _asking_frame() -> FrameType | None:
    """The first frame outside forkpoint."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 documented
    while frame is not None and "/forkpoint/rehearse/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame


def _find(names: list[str], frame: FrameType | None) -> Any:
    if frame is None:
        return None
    first, *rest = names
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for name in rest[:_HOPS]:
        value = getattr(value, "__dict__", {}).get(name)
    return value


class NotANumber(Disturbance):
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

    kind = "not-a-number"
    otherwise = "no module is called in training"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for target in passes(calm, UseKind.FORWARD):
            for value in ("nan", "inf"):
                yield replace(target, settings={"value": value}, label=value)

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


class EmptyMask(Disturbance):
    """A mask selects nothing on one rank.

    What it does
        At the chosen occasion, a mask that selects elements of a tensor (`x[mask]`, `masked_select`, `nonzero`) is all false on the
        chosen rank.

    Where it comes from
        A batch in which nothing counts: all completions were cut, no box, no unmasked token, no sample of a class. TRL 4041 (a
        return where this rank has no token), detectron2 7c69c051, NeMo Automodel 2468 (no valid anchor).

    When it can happen
        Where the number of selected elements differed between ranks, or from time to time, in the calm run: nothing fixes it.

    A healthy program
        Makes the same calls with nothing as with something, or asks all ranks before it leaves any out.
    """

    kind = "empty-mask"
    otherwise = "no mask selects a number of elements that can differ by rank"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for by_rank in calm.uses(UseKind.MASK).values():
            uses = list(by_rank.values())
            if len({count for use in uses for count in use.values}) > 1:
                yield TrialTarget(uses[0].site, tuple(sorted(by_rank)), "", min(use.count for use in uses))

    def selecting(self, site: CodeSite, mask: Any) -> Any:
        if not self.is_here(site) or not self.is_now():
            return mask
        self.say("its mask selected nothing", site)
        return self.inside.torch.zeros_like(mask)


class AnotherRandomSeed(Disturbance):
    """One rank draws different random numbers.

    What it does
        At the chosen draw, the random streams that the whole process shares (`random`, torch's default generator, numpy's) are
        advanced by one draw on the chosen rank: from then on it is one draw ahead of the others.

    Where it comes from
        A rank draws once more than the others: a sample is read again, an augmentation, a dropout in one more
        forward pass. Ranks with the same seed agree only as long as all draw equally often.

    When it can happen
        Wherever the user's code draws from a shared stream. The program's own generators are left alone: a program that creates
        one for its decisions has thought of this.

    A healthy program
        Draws what all ranks must agree on from a generator that is used for nothing else, or on one rank, which broadcasts it.
    """

    kind = "random-seed"
    otherwise = "the program draws from no shared random stream"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        """One target for all places: a rank has one stream of each kind."""
        found = [target for _, target in targets_of(calm, UseKind.DRAW)]
        if found:
            ranks = tuple(sorted({rank for target in found for rank in target.ranks}))
            yield TrialTarget(None, ranks, "", sum(target.occurrences for target in found))

    def drew(self, site: CodeSite, name: str, value: Any) -> None:
        del name, value
        if self.is_here(None) and self.is_now():
            self.say("it had drawn one more random number", site)
            random.random()  # noqa: S311 no secret
            self.inside.torch.rand(1)
            numpy = sys.modules.get("numpy")
            if numpy is not None:
                numpy.random.random()


_HASH_SEED = "4242"


class AnotherHashSeed(Disturbance):
    """One rank hashes strings differently.

    What it does
        The chosen rank has a different `PYTHONHASHSEED`, so its sets of strings have another order. In all
        other runs of a rehearsal the ranks share one.

    Where it comes from
        Python itself: unless it is set, every process has its own. apex 18 (a collective per key of an unordered
        dict), nvalchemi 143 (a set of names, one collective for each), verl 6405.

    When it can happen
        Always, unless the job sets PYTHONHASHSEED for all ranks.

    A healthy program
        Sorts before it loops, if it makes a collective for each element.
    """

    kind = "hash-seed"
    otherwise = ""

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        ranks = tuple(told.rank for told in calm.ranks)
        yield TrialTarget(None, ranks, settings={HASH_SEED: _HASH_SEED}, label=_HASH_SEED)

    def begin(self) -> None:
        if self.is_here(None):
            self.say("its strings have different hashes", None)
