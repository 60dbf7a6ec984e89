"""Which calls communicate: known APIs directly, functions of the program through what they call."""

import ast
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial

from forkpoint.source.apis import Api, ApiKind, MethodApi, known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.hidden import HiddenCalls
from forkpoint.source.program import Program
from forkpoint.source.resolve import RUNS_ITS_ARGUMENT, Resolver
from forkpoint.source.switches import Switches
from forkpoint.source.syntax import (
    all_arguments,
    ancestors,
    argument_for,
    is_property,
    is_repeated,
    is_super,
    last_word,
)

_ORDERED = frozenset({ApiKind.COLLECTIVE, ApiKind.IMPLICIT, ApiKind.SETUP, ApiKind.TEARDOWN})
"""Kinds in which all members of a group take part."""
_Pending = dict[Function, list[tuple[ast.Call, Function]]]
"""For each function the calls that may run it, and where they are."""


_OF_SHARDED = frozenset({"state_dict", "load_state_dict", "clip_grad_norm_", "full_tensor", "generate"})
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
        self._hidden = HiddenCalls(program, resolver)
        self.trains = any(
            name.startswith(self._apis.distributed)
            for module in program.modules.values()
            for name in (*module.imports.values(), *module.stars)
        )
        self.reaches: dict[Function, Reach] = {}
        """Functions in which a collective may happen."""
        self.messages: set[Function] = set()
        """Functions that send or receive by themselves."""
        self._implied: dict[Function, list[ast.Call]] = defaultdict(list)
        """The hidden calls in each function."""
        self._switches: Switches | None = None
        pending, direct = self._calls(program)
        self._spread(pending, direct)
        # Once more, now that it is known which parameters switch communication on.
        self._switches, self.reaches = Switches(resolver, partial(self._steps_in, dict(self.reaches))), {}
        self._spread(pending, direct)
        self.doubtful: dict[Function, Reach] = {}
        """Functions in which a collective happens if an object has one of several classes that the program has for it."""
        self._spread_doubt(program, pending)

    def api(self, call: ast.Call, function: Function) -> Api | None:
        """The communication that the call itself does; None if it only runs other functions."""
        if call not in self._direct:
            self._direct[call] = self._find(call, function)
        return self._direct[call]

    def call_at(self, node: ast.AST) -> ast.Call | None:
        """The call behind this expression, written or implied (a property, an entered object)."""
        return node if isinstance(node, ast.Call) else self._hidden.at.get(node)

    def reach(self, call: ast.Call, function: Function) -> Reach | None:
        """The collective that this call is, or leads to."""
        api = self.api(call, function)
        if api is not None:
            return Reach(api, call, None) if api.kind in _ORDERED else None
        callee = self._communicating(call, function, self.reaches)
        return Reach(self.reaches[callee].api, call, callee) if callee is not None else None

    def _communicating(self, call: ast.Call, function: Function, among: Container[Function]) -> Function | None:
        """The function that the call runs and that communicates."""
        callees = self._resolver.callees(call, function)
        reached = [f for f in callees.functions if f in among and not self._is_off(call, f)]
        if function in reached and not is_repeated(call, function):
            # A recursive call repeats what the function does anyway. Once per element of something means as often as
            # there are elements.
            reached = [f for f in reached if f is not function]
        # If it is not known which function runs, all candidates must communicate.
        is_sure = callees.exact or len(reached) == len(callees.functions)
        return reached[0] if reached and is_sure else None

    def _is_off(self, call: ast.Call, callee: Function) -> bool:
        return self._switches is not None and self._switches.is_off(call, callee)

    def _steps_in(self, among: Container[Function], function: Function) -> Iterator[tuple[ast.Call, Function | None]]:
        for call in (*function.calls, *self._implied[function]):
            api = self.api(call, function)
            if api is not None and api.kind in _ORDERED:
                yield call, None
            elif api is None:
                callees = self._resolver.callees(call, function)
                found = (f for f in callees.functions if f in among and f is not function)
                yield from ((call, f) for f in found if not self._is_off(call, f))

    def is_metric(self, expr: ast.expr, function: Function) -> bool:
        """It holds one rank's part of a result until it is computed."""
        known = self._of_libraries(self._resolver.class_of(expr, function))
        return any(cls in self._apis.metrics or cls.startswith("torchmetrics.") for cls in known)

    def path(self, reach: Reach) -> tuple[tuple[Function, ast.Call], ...]:
        """From the function that the call runs down to the collective."""
        steps: list[tuple[Function, ast.Call]] = []
        function = reach.through
        while function is not None and len(steps) < 12:
            step = self.reaches.get(function) or self.doubtful[function]
            steps.append((function, step.call))
            function = step.through
        return tuple(steps)

    def _calls(self, program: Program) -> tuple[_Pending, dict[ApiKind, dict[Function, Reach]]]:
        """Calls by the function that they run, and functions by what they do themselves."""
        pending: _Pending = defaultdict(list)
        direct: dict[ApiKind, dict[Function, Reach]] = defaultdict(dict)
        for function in program.functions():
            for call in function.calls:
                api = self.api(call, function)
                if api is None:
                    for callee in self._resolver.callees(call, function).functions:
                        pending[callee].append((call, function))
                else:
                    direct[api.kind].setdefault(function, Reach(api, call, None))
            for call in self._hidden.entered(function):
                self._note_hidden(call, function, pending)
        self.messages.update(direct[ApiKind.P2P])
        return pending, direct

    def _spread(self, pending: _Pending, direct: dict[ApiKind, dict[Function, Reach]]) -> None:
        """Breadth first, so that paths are shortest. Collectives during the job take precedence over those at its start and end."""
        for kind in (ApiKind.COLLECTIVE, ApiKind.IMPLICIT, ApiKind.TEARDOWN, ApiKind.SETUP):
            found = {f: r for f, r in direct[kind].items() if f not in self.reaches}
            self.reaches.update(found)
            self._up(list(found), pending)

    def _up(self, fresh: list[Function], pending: _Pending) -> None:
        while fresh:
            later: list[Function] = []
            for callee in fresh:
                if is_property(callee) and self._switches is None:
                    for call, caller in self._hidden.read(callee):
                        self._note_hidden(call, caller, pending)
                for call, caller in pending[callee]:
                    if caller not in self.reaches:
                        reach = self.reach(call, caller)
                        if reach is not None:
                            self.reaches[caller] = reach
                            later.append(caller)
            fresh = later

    def doubtful_reach(self, call: ast.Call, function: Function) -> Reach | None:
        """The collective that the call leads to if an object has one of several classes: one such choice, here or below."""
        if self.reach(call, function) is not None or self.api(call, function) is not None:
            return None
        callees = self._resolver.callees(call, function)
        for callee in callees.possible:
            known = self.reaches.get(callee)
            if known is not None and known.api.kind is ApiKind.COLLECTIVE and not self._is_off(call, callee):
                return Reach(known.api, call, callee)
        sure = callees.functions[0] if callees.exact and callees.functions else None
        known = self.doubtful.get(sure) if sure is not None and sure is not function else None
        return Reach(known.api, call, sure) if known is not None and self._may_choose(known, call, function) else None

    def _may_choose(self, doubt: Reach, call: ast.Call, function: Function) -> bool:
        """`self.save_parts()` in an inherited method runs that of the object's class, not of its relatives."""
        chosen = doubt.through.owner if doubt.through is not None else None
        of_self = isinstance(doubt.call.func, ast.Attribute) and ast.unparse(doubt.call.func.value) == "self"
        if chosen is None or not of_self or not isinstance(call.func, ast.Attribute):
            return True
        cls = self._resolver.class_of(call.func.value, function)
        above = self._resolver.ancestors
        return not isinstance(cls, Class) or cls is chosen or chosen in above(cls) or cls in above(chosen)

    def _spread_doubt(self, program: Program, pending: _Pending) -> None:
        fresh: list[Function] = []
        for function in program.functions():
            if function not in self.reaches:
                found = (r for call in function.calls if (r := self.doubtful_reach(call, function)) is not None)
                reach = next(found, None)
                if reach is not None:
                    self.doubtful[function] = reach
                    fresh.append(function)
        while fresh:
            callee = fresh.pop()
            for call, caller in pending[callee]:
                if caller not in self.doubtful and caller not in self.reaches:
                    reach = self.doubtful_reach(call, caller)
                    if reach is not None:
                        self.doubtful[caller] = reach
                        fresh.append(caller)

    def _note_hidden(self, call: ast.Call, caller: Function, pending: _Pending) -> None:
        self._direct[call] = None
        self._implied[caller].append(call)
        for callee in self._resolver.callees(call, caller).functions:
            pending[callee].append((call, caller))

    def _find(self, call: ast.Call, function: Function) -> Api | None:
        func = call.func
        name = last_word(func)
        if self._resolver.definition(func, function) is not None:
            return None
        dotted = self._resolver.dotted(func, function)
        if name in RUNS_ITS_ARGUMENT:
            return self._of_passed(call, function)
        if dotted is not None:
            return self._of_library(dotted) or self._of_sharded_parameters(dotted, call, function)
        if isinstance(func, ast.Name) and func.id in function.params:
            return self._of_callback(func.id, function) or self._of_wrapped(func, function)
        if isinstance(func, ast.Attribute):
            return self._of_method(func, call, function)
        return self._of_wrapped(func, function)

    def _of_passed(self, call: ast.Call, function: Function) -> Api | None:
        """`to_thread(dist.barrier)`."""
        for argument in all_arguments(call):
            dotted = self._resolver.dotted(argument, function)
            if dotted is not None and self._resolver.definition(argument, function) is None:
                return self._of_library(dotted)
        return None

    def _of_callback(self, name: str, function: Function) -> Api | None:
        """A parameter that is called: what callers pass for it, if all pass the same."""
        apis = {
            self._passed_api(argument, caller)
            for call, caller in self._resolver.call_sites(function)
            if (argument := argument_for(name, call, function)) is not None
        }
        return apis.pop() if len(apis) == 1 else None

    def _passed_api(self, argument: ast.expr, caller: Function) -> Api | None:
        """Of `dist.barrier`, or of `lambda: dist.barrier()`."""
        if isinstance(argument, ast.Lambda):
            return self.api(argument.body, caller) if isinstance(argument.body, ast.Call) else None
        dotted = self._resolver.dotted(argument, caller)
        return self._of_library(dotted) if dotted else None

    def _of_sharded_parameters(self, dotted: str, call: ast.Call, function: Function) -> Api | None:
        """`clip_grad_norm_(model.parameters(), 1.0)` of a sharded model adds up parts that other ranks hold."""
        if not dotted.endswith("utils.clip_grad_norm_") or not call.args:
            return None
        match call.args[0]:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters")):
                is_sharded = self._resolver.class_of(model, function) in self._apis.sharded
                return Api("clip_grad_norm_", ApiKind.COLLECTIVE) if is_sharded else None
            case _:
                return None

    def _of_library(self, dotted: str) -> Api | None:
        apis, name = self._apis, dotted.rpartition(".")[2]
        if dotted in apis.constructors or dotted in apis.calls:
            return Api(name, ApiKind.COLLECTIVE)
        if name in apis.functions and (dotted.startswith(apis.modules) or name in apis.distinct):
            return apis.functions[name]
        known = apis.methods.get(name, ()) if name in apis.distinct else ()
        return known[0].api if known else None

    def _of_method(self, func: ast.Attribute, call: ast.Call, function: Function) -> Api | None:
        cls = self._resolver.class_of(func.value, function)
        if isinstance(cls, Class):
            # A metric's base class synchronises around `compute`, also around one that the program writes itself.
            if func.attr == "compute" and self._apis.metrics & set(self._of_libraries(cls)):
                return None if is_super(func.value) else Api("compute", ApiKind.COLLECTIVE, "result")
            # Methods of the program are analysed; methods inherited from a library are known by name.
            if self._resolver.method(cls, func.attr) is not None:
                return self._of_own_group(func)
        if func.attr in _OF_SHARDED and (
            cls in self._apis.sharded
            or _is_in_state_context(func, call, function)
            or self._is_asked_to_be_sharded(func.value, call, function)
        ):
            return Api(func.attr, ApiKind.COLLECTIVE)
        if func.attr in {"log", "log_dict"} and _is_true("sync_dist", call) and not _is_true("rank_zero_only", call):
            return Api("log with sync_dist", ApiKind.COLLECTIVE)
        if func.attr == "__iter__" and is_super(func.value) and self._is_loader(function):
            return Api("DataLoader.__iter__", ApiKind.COLLECTIVE)
        if func.attr in {"backward", "manual_backward"} and self.trains:
            return Api("backward", ApiKind.IMPLICIT)
        for method in self._apis.methods.get(func.attr, ()):
            if _fits(method, func.value, self._of_libraries(cls)):
                return None if _is_tensor_gather(func, call) else method.api
        return self._of_wrapped(func, function)

    def _of_own_group(self, func: ast.Attribute) -> Api | None:
        """`pp_group.send(x, dst)` on a class of the program: still a message, and the call names the partner."""
        known = (m for m in self._apis.methods.get(func.attr, ()) if m.api.kind is ApiKind.P2P)
        return next((m.api for m in known if _fits(m, func.value, [])), None)

    def _is_asked_to_be_sharded(self, model: ast.expr, call: ast.Call, function: Function) -> bool:
        """`if isinstance(model, FSDP): model.state_dict()`."""
        for outer, inner in ancestors(call, function):
            match outer:
                case ast.If(test=ast.Call(func=ast.Name(id="isinstance"), args=[asked, cls])) if inner in outer.body:
                    is_same = ast.unparse(asked) == ast.unparse(model)
                    if is_same and self._resolver.dotted(cls, function) in self._apis.sharded:
                        return True
                case _:
                    pass
        return False

    def _of_libraries(self, cls: Class | str | None) -> list[str]:
        """The class, or those that a class of the program inherits from."""
        if isinstance(cls, Class):
            return [base for base in self._resolver.ancestors(cls) if isinstance(base, str)]
        return [cls] if cls else []

    def _is_loader(self, function: Function) -> bool:
        """Iterating over a DataLoader of data pipes broadcasts a seed."""
        owner = function.owner
        return owner is not None and "torch.utils.data.DataLoader" in self._of_libraries(owner)

    def _of_wrapped(self, func: ast.expr, function: Function) -> Api | None:
        cls = self._resolver.class_of(func, function)
        return Api("forward", ApiKind.IMPLICIT) if isinstance(cls, str) and cls in self._apis.wrappers else None


def _fits(method: MethodApi, receiver: ast.expr, classes: list[str]) -> bool:
    """The receiver is such an object, by its class or by its name."""
    if method.classes:
        return any(c.startswith(method.classes) and c.endswith(method.class_ends) for c in classes)
    if not method.receiver:
        return True
    if any(word in c.lower() for c in classes for word in method.receiver):
        return True
    parts = last_word(receiver).lower().strip("_").split("_")
    return any(word in parts or parts[-1].endswith(word) for word in method.receiver)


def _is_true(name: str, call: ast.Call) -> bool:
    return any(k.arg == name and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords)


def _is_in_state_context(func: ast.Attribute, call: ast.Call, function: Function) -> bool:
    """`with FSDP.state_dict_type(model, ...): model.state_dict()`."""
    if func.attr != "state_dict":
        return False
    model = ast.unparse(func.value)
    around = (outer for outer, _ in ancestors(call, function) if isinstance(outer, ast.With))
    entered = (item.context_expr for node in around for item in node.items)
    return any(
        isinstance(e, ast.Call) and last_word(e) == "state_dict_type" and e.args and ast.unparse(e.args[0]) == model
        for e in entered
    )


def _is_tensor_gather(func: ast.Attribute, call: ast.Call) -> bool:
    """`logits.gather(1, index)` picks elements."""
    return func.attr == "gather" and any(k.arg in {"dim", "index"} for k in call.keywords)
