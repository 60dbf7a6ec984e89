"""Calls that a parameter keeps from communicating, interfaces of which one class communicates, and what ranks hold alone."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair, rules_in

SWITCHED = """
        def store(x, gather={default}):
            {asks}
                dist.all_reduce(x)
            return x

        def main(rank, x):
            if rank == 0:
                store(x{given})
"""
HANDED_ON = """
        class Writer:
            def append(self, x, gather=False):
                self.store(x, gather=gather)
            def store(self, x, gather):
                if gather:
                    dist.all_reduce(x)

        def main(rank, x):
            if rank == 0:
                Writer().append(x{given})
"""
NAMED = """
        class Writer:
            def __init__(self, path, together=True):
                waits = together and dist.is_initialized()
                if waits:
                    dist.barrier()

        def main(rank):
            if rank == 0:
                Writer("x"{given})
"""
GANG = """
        from abc import ABC, abstractmethod

        class Gang(ABC):
            @property
            @abstractmethod
            def rank(self): ...
            @abstractmethod
            def barrier(self): ...

        class Real(Gang):
            @property
            def rank(self):
                return self._rank
            def barrier(self):
                dist.barrier(group=self._pg)

        class Alone(Gang):
            @property
            def rank(self):
                return 0
            def barrier(self):
                pass

        class Store:
            def __init__(self, gang: Gang):
                self.gang = gang
            def delete(self, path):
                if self.gang.rank == 0:
                    if not path.is_link():
                        {end}
                self.gang.barrier()
"""
INTERFACE = """
        class Writer:
            def write(self, x):
                raise NotImplementedError

        class ToFile(Writer):
            def write(self, x):
                open("x", "w").write(x)

        class ToTable(Writer):
            def write(self, x):
                {how}

        def report(rank, x, writer: Writer):
            if rank == 0:
                writer.write(x)
            {others}
"""
PLAN = """
        import os

        def plan(folder, rank):
            known = os.path.join(folder, "plan")
            if os.path.exists(known):
                return open(known).read()
            {meet}
            if rank == 0:
                made = os.path.join(folder, "plan")
                os.makedirs(made)
            {after}
            return open(known).read()
"""
METRIC = """
        from torchmetrics.detection import IntersectionOverUnion

        class Task:
            def __init__(self):
                self.overlap = IntersectionOverUnion()
            def finish(self):
                if {asks}:
                    return self.overlap.compute()
"""
ITEMS = """
        def options(rank):
            found = {{"steps": 100, "saves": rank == 0}}
            if found["{key}"]:
                dist.barrier()
"""
PAIRS = {
    "a parameter that switches it off by default": Pair(
        "call-under-branch",
        SWITCHED.format(default="False", asks="if gather:", given=", gather=True"),
        SWITCHED.format(default="False", asks="if gather:", given=""),
    ),
    "a parameter that is passed by place": Pair(
        "call-under-branch",
        SWITCHED.format(default="True", asks="if gather and dist.is_initialized():", given=", True"),
        SWITCHED.format(default="True", asks="if gather and dist.is_initialized():", given=", False"),
    ),
    "a parameter that may be None": Pair(
        "call-under-branch",
        SWITCHED.format(default="None", asks="if gather is not None:", given=", x"),
        SWITCHED.format(default="None", asks="if gather is not None:", given=""),
    ),
    "a function that returns before it": Pair(
        "call-under-branch",
        SWITCHED.format(
            default="True", asks="if not gather:\n                return x\n            with dist.lock:", given=""
        ),
        SWITCHED.format(
            default="True",
            asks="if not gather:\n                return x\n            with dist.lock:",
            given=", gather=False",
        ),
    ),
    "a switch that is handed on": Pair(
        "call-under-branch", HANDED_ON.format(given=", gather=True"), HANDED_ON.format(given="")
    ),
    "a switch under another name": Pair(
        "call-under-branch", NAMED.format(given=""), NAMED.format(given=", together=False")
    ),
    "the place in the group that is used": Pair(
        "exit-before-collective", GANG.format(end="return"), GANG.format(end="path.unlink()")
    ),
    "an interface with one class that communicates": Pair(
        "call-under-branch",
        INTERFACE.format(how="dist.all_reduce(x)", others="return x"),
        INTERFACE.format(how="print(x)", others="return x"),
    ),
    "an interface that all ranks call": Pair(
        "call-under-branch",
        INTERFACE.format(how="dist.all_reduce(x)", others="return x"),
        INTERFACE.format(how="dist.all_reduce(x)", others="else:\n                writer.write(None)"),
    ),
    "a plan that one rank makes after all have looked": Pair(
        "exit-before-collective",
        PLAN.format(meet="pass", after="dist.barrier()"),
        PLAN.format(meet="pass", after="pass"),
    ),
    "what a metric has counted": Pair(
        "collective-under-branch",
        METRIC.format(asks="len(self.overlap.labels) > 0"),
        METRIC.format(asks="len(self.names) > 0"),
    ),
    "one entry of a dictionary": Pair("collective-under-branch", ITEMS.format(key="saves"), ITEMS.format(key="steps")),
}


@for_each("what", PAIRS)
def test_it_is_found_and_its_harmless_twin_is_not(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)


def test_what_the_last_of_several_threads_is_given_is_not_guessed(tmp_path: Path) -> None:
    handed = """
        from threading import Thread

        class Writer:
            def append(self, x, gather=False):
                if self.later:
                    Thread(target=self.work).start()
                else:
                    self.store(x, gather=gather)
            def work(self):
                self.store(**self.queue.get())
            def store(self, x, gather=False):
                if gather:
                    dist.all_reduce(x)

        def main(rank, x):
            if rank == 0:
                Writer().append(x)
    """

    assert rules_in(tmp_path, handed) == set()


def test_a_context_manager_with_a_pair_of_barriers_is_right_in_itself(tmp_path: Path) -> None:
    """Who enters it on one rank only is at fault."""
    entered = """
        from contextlib import contextmanager

        @contextmanager
        def first(is_master, is_local_master, shared):
            if shared:
                if not is_master:
                    dist.barrier()
            elif not is_local_master:
                dist.barrier()
            yield
            if shared:
                if is_master:
                    dist.barrier()
            elif is_local_master:
                dist.barrier()

        def main(rank, is_master, is_local_master):
            if rank == 0:
                with first(is_master, is_local_master, True):
                    print("x")
    """

    assert rules_in(tmp_path, entered) == {"call-under-branch"}


def test_random_numbers_of_a_generator_of_its_own_are_not_known_to_differ(tmp_path: Path) -> None:
    drawn = """
        def train(rank, generator):
            torch.manual_seed(rank)
            if torch.rand(1{given}) > 0.5:
                dist.barrier()
    """

    assert rules_in(tmp_path, drawn.format(given="")) == {"collective-under-branch"}
    assert rules_in(tmp_path, drawn.format(given=", generator=generator")) == set()
