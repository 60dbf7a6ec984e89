"""Which calls communicate: known APIs directly, functions of the program through what they call."""

import ast
from collections import defaultdict
from dataclasses import dataclass

from forkpoint.source.apis import Api, ApiKind, known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.program import Program
from forkpoint.source.resolve import RUNS_ITS_ARGUMENT, Resolver
from forkpoint.source.syntax import argument_for, is_super, last_word

_ORDERED = frozenset({ApiKind.COLLECTIVE, ApiKind.IMPLICIT, ApiKind.SETUP, ApiKind.TEARDOWN})
"""Kinds in which all members of a group take part."""


_OF_SHARDED = frozenset({"state_dict", "load_state_dict", "clip_grad_norm_", "full_tensor"})
"""Methods of a sharded model that gather its parts."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How a function reaches a collective: the call, and the function that the call runs."""

    api: Api
    call: ast.Call
    through: Function | None
    """None if the call itself is the collective."""


class Communication:
    """Answers are cached."""

    def __init__(self, program: Program, resolver: Resolver) -> None:
        self._resolver = resolver
        self._apis = known_apis()
        self._direct: dict[ast.Call, Api | None] = {}
        self._trains = any(
            name.startswith(self._apis.distributed)
            for module in program.modules.values()
            for name in (*module.imports.values(), *module.stars)
        )
        self.reaches: dict[Function, Reach] = {}
        """Functions in which a collective may happen."""
        self.messages: set[Function] = set()
        """Functions that send or receive by themselves."""
        self._spread(program)

    def api(self, call: ast.Call, function: Function) -> Api | None:
        """The communication that the call itself does; None if it only runs other functions."""
        if call not in self._direct:
            self._direct[call] = self._find(call, function)
        return self._direct[call]

    def reach(self, call: ast.Call, function: Function) -> Reach | None:
        """The collective that this call is, or leads to."""
        api = self.api(call, function)
        if api is not None:
            return Reach(api, call, None) if api.kind in _ORDERED else None
        callees = self._resolver.callees(call, function)
        reached = [f for f in callees.functions if f in self.reaches and f is not function]
        # If it is not known which function runs, all candidates must communicate.
        if not reached or (not callees.exact and len(reached) < len(callees.functions)):
            return None
        return Reach(self.reaches[reached[0]].api, call, reached[0])

    def path(self, reach: Reach) -> tuple[tuple[Function, ast.Call], ...]:
        """From the function that the call runs down to the collective."""
        steps: list[tuple[Function, ast.Call]] = []
        function = reach.through
        while function is not None and len(steps) < 12:
            step = self.reaches[function]
            steps.append((function, step.call))
            function = step.through
        return tuple(steps)

    def _spread(self, program: Program) -> None:
        """Breadth first, so that paths are shortest."""
        pending: dict[Function, list[tuple[ast.Call, Function]]] = defaultdict(list)
        direct: dict[ApiKind, dict[Function, Reach]] = defaultdict(dict)
        for function in program.functions():
            for call in function.calls:
                api = self.api(call, function)
                if api is None:
                    for callee in self._resolver.callees(call, function).functions:
                        pending[callee].append((call, function))
                else:
                    direct[api.kind].setdefault(function, Reach(api, call, None))
        self.messages.update(direct[ApiKind.P2P])
        # Collectives during the job take precedence over those at its start and end.
        for kind in (ApiKind.COLLECTIVE, ApiKind.IMPLICIT, ApiKind.TEARDOWN, ApiKind.SETUP):
            found = {f: r for f, r in direct[kind].items() if f not in self.reaches}
            self.reaches.update(found)
            self._up(list(found), pending)

    def _up(self, fresh: list[Function], pending: dict[Function, list[tuple[ast.Call, Function]]]) -> None:
        while fresh:
            later: list[Function] = []
            for callee in fresh:
                for call, caller in pending[callee]:
                    if caller not in self.reaches:
                        reach = self.reach(call, caller)
                        if reach is not None:
                            self.reaches[caller] = reach
                            later.append(caller)
            fresh = later

    def _find(self, call: ast.Call, function: Function) -> Api | None:
        func = call.func
        name = last_word(func)
        if self._resolver.definition(func, function) is not None:
            return None
        dotted = self._resolver.dotted(func, function)
        if name in RUNS_ITS_ARGUMENT:
            return self._of_passed(call, function)
        if dotted is not None:
            return self._of_library(dotted)
        if isinstance(func, ast.Name) and func.id in function.params:
            return self._of_callback(func.id, function) or self._of_wrapped(func, function)
        if isinstance(func, ast.Attribute):
            return self._of_method(func, call, function)
        return self._of_wrapped(func, function)

    def _of_passed(self, call: ast.Call, function: Function) -> Api | None:
        """`to_thread(dist.barrier)`."""
        for argument in call.args:
            dotted = self._resolver.dotted(argument, function)
            if dotted is not None and self._resolver.definition(argument, function) is None:
                return self._of_library(dotted)
        return None

    def _of_callback(self, name: str, function: Function) -> Api | None:
        """A parameter that is called: what callers pass for it, if all pass the same."""
        passed = {
            self._resolver.dotted(argument, caller)
            for call, caller in self._resolver.call_sites(function)
            if (argument := argument_for(name, call, function)) is not None
        }
        apis = {self._of_library(dotted) for dotted in passed if dotted}
        return apis.pop() if len(apis) == 1 else None

    def _of_library(self, dotted: str) -> Api | None:
        apis, name = self._apis, dotted.rpartition(".")[2]
        if dotted in apis.constructors or dotted in apis.calls:
            return Api(name, ApiKind.COLLECTIVE)
        if name in apis.functions and (dotted.startswith(apis.modules) or name in apis.distinct):
            return apis.functions[name]
        method = apis.methods.get(name) if name in apis.distinct else None
        return method.api if method else None

    def _of_method(self, func: ast.Attribute, call: ast.Call, function: Function) -> Api | None:
        cls = self._resolver.class_of(func.value, function)
        if isinstance(cls, Class):
            # A metric's base class synchronises around `compute`, also around one that the program writes itself.
            if func.attr == "compute" and self._apis.metrics & set(map(str, self._resolver.ancestors(cls))):
                return None if is_super(func.value) else Api("compute", ApiKind.COLLECTIVE, "result")
            # Methods of the program are analysed; methods inherited from a library are known by name.
            if self._resolver.method(cls, func.attr) is not None:
                return None
        if isinstance(cls, str) and cls in self._apis.sharded and func.attr in _OF_SHARDED:
            return Api(func.attr, ApiKind.COLLECTIVE)
        if func.attr == "__iter__" and is_super(func.value) and self._is_loader(function):
            return Api("DataLoader.__iter__", ApiKind.COLLECTIVE)
        if func.attr in {"backward", "manual_backward"} and self._trains:
            return Api("backward", ApiKind.IMPLICIT)
        method = self._apis.methods.get(func.attr)
        if method is not None and _is_receiver(func.value, method.receiver):
            return None if _is_tensor_gather(func, call) else method.api
        return self._of_wrapped(func, function)

    def _is_loader(self, function: Function) -> bool:
        """Iterating over a DataLoader of data pipes broadcasts a seed."""
        owner = function.owner
        return owner is not None and "torch.utils.data.DataLoader" in map(str, self._resolver.ancestors(owner))

    def _of_wrapped(self, func: ast.expr, function: Function) -> Api | None:
        cls = self._resolver.class_of(func, function)
        return Api("forward", ApiKind.IMPLICIT) if isinstance(cls, str) and cls in self._apis.wrappers else None


def _is_receiver(receiver: ast.expr, words: tuple[str, ...]) -> bool:
    if not words:
        return True
    parts = last_word(receiver).lower().strip("_").split("_")
    return any(word in parts or parts[-1].endswith(word) for word in words)


def _is_tensor_gather(func: ast.Attribute, call: ast.Call) -> bool:
    """`logits.gather(1, index)` picks elements."""
    return func.attr == "gather" and any(k.arg in {"dim", "index"} for k in call.keywords)
