"""What a program sets up once and what makes its values differ later: seeds of random numbers, and signal handlers."""

import ast
from dataclasses import dataclass

from forkpoint.source.apis import is_rank_word
from forkpoint.source.code import Function
from forkpoint.source.resolve import Resolver
from forkpoint.source.syntax import called_name, names_and_attributes_in

_SEEDS = {
    "random.": ("random.seed",),
    "numpy.random.": ("numpy.random.seed",),
    "torch.": ("torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"),
}
"""For each family of random functions, the calls that seed it."""
_SEED_ALL = frozenset({"set_seed", "seed_everything", "seed_all", "set_random_seed"})


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    line: int


class Beginnings:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._seeds: dict[str, Place | None] = {}
        sites = [(c, f) for c, f in resolver.calls_of("signal") if resolver.dotted(c.func, f) == "signal.signal"]
        passed = (resolver.held(call.args[1], function) for call, function in sites if len(call.args) > 1)
        self.signal_handlers: frozenset[Function] = frozenset(filter(None, passed))

    def seeded_by_rank(self, drawn: str) -> Place | None:
        """Where the program seeds the generator behind this function with a number that depends on the rank."""
        generator = next((g for g in _SEEDS if drawn.startswith(g)), None)
        if generator is None:
            return None
        if generator not in self._seeds:
            names = {*_SEED_ALL, *(name.rpartition(".")[2] for name in _SEEDS[generator])}
            sites = (site for name in sorted(names) for site in self._resolver.calls_of(name))
            places = (Place(f.module.path, c.lineno) for c, f in sites if self._seeds_with_rank(c, f, generator))
            self._seeds[generator] = next(places, None)
        return self._seeds[generator]

    def _seeds_with_rank(self, call: ast.Call, function: Function, generator: str) -> bool:
        dotted = self._resolver.dotted(call.func, function)
        is_meant = called_name(call.func) in _SEED_ALL or dotted in _SEEDS[generator]
        given = {name for argument in call.args for name in names_and_attributes_in(argument)}
        is_test = function.module.path in self._resolver.program.tests
        return is_meant and not is_test and any(map(is_rank_word, given))
