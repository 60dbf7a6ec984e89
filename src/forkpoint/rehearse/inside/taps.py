"""Taps on everything rank-local that a program can ask for: each one calls the listener, which may change the answer.

Only calls from the user's own code reach the listener. Libraries, and the guard, are not affected.
"""

import datetime as dt
import functools
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
import torch.utils.data
from torch.distributed import distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from forkpoint.rehearse.inside.files import FileTaps
from forkpoint.rehearse.inside.places import CodePlaces, user_modules
from forkpoint.rehearse.inside.user_code import TryTaps, loader_facts, open_filters
from forkpoint.rehearse.inside.waiting import WaitingTaps
from forkpoint.rehearse.listening import Listener

_frame = sys._getframe  # noqa: SLF001 documented, and a tap needs its caller

_CLOCKS: Final = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")
_READS: Final = ("item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__")
_DRAWS: Final = ("random", "randint", "uniform", "choice", "randrange", "sample", "shuffle", "gauss")
_TORCH_DRAWS: Final = ("rand", "randn", "randint", "randperm", "rand_like", "bernoulli", "multinomial")
_NUMPY_DRAWS: Final = ("rand", "randn", "random", "randint", "uniform", "choice", "shuffle", "permutation")


class Taps:
    """All taps of one process."""

    def __init__(
        self, listener: Listener, places: CodePlaces, *, on_join: Callable[[], None], on_step: Callable[[int], None]
    ) -> None:
        self._listener = listener
        self._on_join = on_join
        self._on_step = on_step
        self._cpu = False
        self._places = places
        self._trying = TryTaps(places, listener)
        self._loaders: dict[int, int] = {}
        self._depth = 0
        self._module_call: Any = None
        self._swapped: dict[int, Any] = {}
        """id of a function -> its replacement, for names that were imported before."""
        self._kept: list[Any] = []

    def open_all(self) -> None:
        for name in _READS:
            self._on_tensor(name)
        self._on_masks()
        for name in _CLOCKS:
            self.swap(time, name, self._clock)
        self.swap(dt, "datetime", self._calendar)
        for name in _DRAWS:
            self.swap(random, name, self._draw)
        for name in _TORCH_DRAWS:
            self.swap(torch, name, self._draw)
        for name in _NUMPY_DRAWS:
            self.swap(np.random, name, self._draw)
        self._open_training()
        FileTaps(self._listener, self._places).open(self.swap)
        WaitingTaps(self._listener, self._places).open(self.swap)
        open_filters(self._listener, self._places, _is_mask, self._trying.tell_method)

    # ------------------------------------------------------------------------------------------------------ swapping

    def swap(self, owner: Any, name: str, make: Callable[[Any, str], Any]) -> None:
        original = getattr(owner, name)
        instead = make(original, name)
        functools.update_wrapper(instead, original, updated=())  # the __dict__ of a class is read-only
        setattr(owner, name, instead)
        self._kept.append(original)
        self._swapped[id(original)] = instead

    def begin(self) -> None:
        """After the user's modules are loaded: replaces names that they imported earlier, and calls inside `try`."""
        for module in user_modules(self._places):
            names: dict[str, Any] = module.__dict__
            for name, value in list(names.items()):
                if id(value) in self._swapped:
                    names[name] = self._swapped[id(value)]
            self._trying.tap(module)
        self._listener.begin()

    # ------------------------------------------------------------------------------------------------ values of tensors

    def _on_tensor(self, name: str) -> None:
        original = getattr(torch.Tensor, name)
        at, listener, how = self._places.asking, self._listener, name.strip("_")

        def read(tensor: Any, *args: Any, **named: Any) -> Any:
            value = original(tensor, *args, **named)
            site = at(_frame(1))
            return value if site is None else listener.read(site, how, value)

        setattr(torch.Tensor, name, read)

    def _on_masks(self) -> None:
        """`x.masked_select(mask)` and `mask.nonzero()`; `x[mask]` is in user_code.py. `Tensor.__getitem__` must stay as it is: a class with
        such a method in Python is a sequence to torch, which then asks for the length of each number in a list.
        """
        at, listener = self._places.asking, self._listener
        kind: Any = torch.Tensor
        select, nonzero = kind.masked_select, kind.nonzero

        def told(mask: Any, frame: Any) -> Any:
            site = at(frame)
            return mask if site is None else listener.selecting(site, mask)

        def masked_select(tensor: Any, mask: Any) -> Any:
            return select(tensor, told(mask, _frame(1)))

        def find_nonzero(tensor: Any, **named: Any) -> Any:
            return nonzero(told(tensor, _frame(1)), **named)

        kind.masked_select, kind.nonzero = masked_select, find_nonzero

    # -------------------------------------------------------------------------------------------- clocks, random

    def _clock(self, original: Any, name: str) -> Any:
        at, listener, unit = self._places.asking, self._listener, 1e9 if name.endswith("_ns") else 1.0

        def now() -> float:
            value = original()
            site = at(_frame(1))
            if site is None:
                return value
            told = listener.clock(site, name, value / unit)
            return int(told * unit) if unit > 1 else told

        return now

    def _calendar(self, original: Any, _name: str) -> Any:
        """`datetime.datetime` cannot be changed, so the module gets a subclass, which takes its instances for its own."""
        at, listener = self._places.asking, self._listener

        def told(value: Any, frame: Any) -> Any:
            site = at(frame)
            now = value.timestamp()
            return value if site is None else value + dt.timedelta(seconds=listener.clock(site, "now", now) - now)

        class CalendarType(type):
            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, original)

        class Calendar(original, metaclass=CalendarType):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return told(original.now(tz), _frame(1))

            @classmethod
            def today(cls) -> Any:
                return told(original.today(), _frame(1))

            @classmethod
            def utcnow(cls) -> Any:
                return told(original.now(dt.UTC), _frame(1)).replace(tzinfo=None)

        return Calendar

    def _draw(self, original: Any, name: str) -> Any:
        at, listener = self._places.asking, self._listener

        def draw(*args: Any, **named: Any) -> Any:
            value = original(*args, **named)
            site = at(_frame(1))
            if site is not None and named.get("generator") is None:
                listener.drew(site, name, value)
            return value

        return draw

    # ------------------------------------------------------------------------------------------------------- training

    def _open_training(self) -> None:
        self.swap(torch.utils.data.DataLoader, "__iter__", self._iterate)
        self._module_call = torch.nn.Module.__call__
        self.swap(torch.nn.Module, "__call__", self._call)
        self.swap(torch.Tensor, "backward", self._backward)

    def open_least(self, *, cpu: bool) -> None:
        """The taps that every rank needs: joining the group, and steps. `cpu`: replaces NCCL by gloo."""
        self._cpu = cpu
        self.swap(dist, "init_process_group", self._init)
        distributed_c10d.init_process_group = dist.init_process_group
        steps = count(1)
        outermost: list[Any] = []  # ZeRO's optimizer calls another one

        def begins(optimizer: Any, *_: Any) -> None:
            if not outermost:
                outermost.append(optimizer)

        def stepped(optimizer: Any, *_: Any) -> None:
            if outermost and outermost[0] is optimizer:
                outermost.clear()
                number = next(steps)
                self._on_step(number)
                self._listener.stepped(number)

        register_optimizer_step_pre_hook(begins)
        register_optimizer_step_post_hook(stepped)

    def close_modules(self) -> None:
        """Removes the tap on module calls, because there are many of them."""
        if self._module_call is not None:
            kind: Any = torch.nn.Module
            kind.__call__, self._module_call = self._module_call, None

    def _init(self, original: Any, _name: str) -> Any:
        def init_process_group(*args: Any, **named: Any) -> Any:
            if self._cpu:
                args, named = _on_cpu(args, named)
            made = original(*args, **named)
            self._on_join()
            self.begin()
            return made

        return init_process_group

    def _iterate(self, original: Any, _name: str) -> Any:
        def iterate(loader: Any) -> Iterator[Any]:
            site = self._places.nearest(_frame(1))
            number = self._loaders.setdefault(id(loader), len(self._loaders))
            facts = loader_facts(loader, number, self._places)
            batches = original(loader)
            if facts.workers:
                self._listener.workers(site, facts, getattr(batches, "_workers", ()))
            return self._listener.batches(site, facts, batches)

        return iterate

    def _call(self, original: Any, _name: str) -> Any:
        def call(module: Any, *args: Any, **named: Any) -> Any:
            if self._depth or not torch.is_grad_enabled():
                return original(module, *args, **named)
            site = self._places.nearest(_frame(1))
            self._trying.tell(_frame(1), type(module).__name__)
            self._depth += 1
            try:
                self._listener.forward(site)
                output = original(module, *args, **named)
            finally:
                self._depth -= 1
            return self._listener.output(site, output)

        return call

    def _backward(self, original: Any, _name: str) -> Any:
        def backward(tensor: Any, *args: Any, **named: Any) -> Any:
            self._trying.tell(_frame(1), "backward")
            self._listener.backward(self._places.nearest(_frame(1)))
            return original(tensor, *args, **named)

        return backward


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype is torch.bool


def _on_cpu(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that ask for gloo, whatever backend and device the script wants."""
    without = {name: value for name, value in named.items() if name not in ("backend", "device_id")}
    return (("gloo", *args[1:]), without) if args else ((), {**without, "backend": "gloo"})
