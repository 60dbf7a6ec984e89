"""Stacks from the recorder without loading torch's compiler.

To name frames torch asks whether `torch._inductor` has compiled code, and that question imports it: 1.7 s of CPU and 80 MB
in every rank at the worst moment. Where it is not loaded, no code of it can be on a stack, and the question may be
answered with no.
"""

import importlib
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

import torch


class _NotLoaded(ModuleType):
    """Has nothing for the thread that dumps. Any other thread that comes by gets the real module, as always."""

    def __init__(self, asker: int) -> None:
        super().__init__("torch._inductor")
        self._asker = asker

    def __getattr__(self, name: str) -> object:
        if threading.get_ident() == self._asker:
            raise AttributeError(name)
        return getattr(importlib.import_module("torch._inductor"), name)


@contextmanager
def without_inductor() -> Generator[None]:
    if "torch._inductor" in sys.modules:
        yield
        return
    names: dict[str, object] = torch.__dict__
    placed = names["_inductor"] = _NotLoaded(threading.get_ident())
    try:
        yield
    finally:
        if names.get("_inductor") is placed:  # not where it was imported meanwhile
            del names["_inductor"]
