"""Calls of which the program shows a class, or several: elements of containers, results of methods, overridden methods."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair, rules_in

LOGGERS = """
        class Logger:
            def write(self, x):
                print(x)

        class Shared(Logger):
            def write(self, x):
                {writes}

        class Reporter:
            def __init__(self, {given}):
                self.loggers{held}
            def report(self, x):
                for logger in self.loggers{items}:
                    logger.write(x)

        def main(rank, x):
            reporter = Reporter()
            {calls}
"""
REDUCES = "dist.all_reduce(x)"
PLAIN = {"given": "loggers: list[Logger] | None = None", "held": " = loggers or []", "items": ""}
ON_ONE = "if rank == 0: reporter.report(x)"


def loggers(writes: str = REDUCES, calls: str = ON_ONE, **how: str) -> str:
    return LOGGERS.format(**{**PLAIN, "writes": writes, "calls": calls, **how})


HOLDERS = (
    {},
    {"given": "loggers: 'dict[str, Logger]'", "held": " = loggers", "items": ".values()"},
    {"given": "quiet=True", "held": " = [Logger(), Shared()]"},
    {"given": "quiet=True", "held": " = []\n                self.loggers.append(Shared())"},
    {"given": "quiet=True", "held": ": list[Logger] = make_loggers()"},
)


@for_each("how", HOLDERS)
def test_what_an_element_of_a_container_may_do_counts_on_one_rank(how: dict[str, str], tmp_path: Path) -> None:
    found, silent = loggers(**how), loggers(writes="print(x, x)", **how)
    assert "call-under-branch" in rules_in(tmp_path, found)
    assert rules_in(tmp_path, silent) == set()


def test_what_all_ranks_call_may_do_either(tmp_path: Path) -> None:
    assert rules_in(tmp_path, loggers(calls="reporter.report(x)")) == set()


def test_ranks_that_have_returned_do_not_call_it(tmp_path: Path) -> None:
    left = "if rank != 0:\n                return\n            reporter.report(x)"
    assert "call-under-branch" in rules_in(tmp_path, loggers(calls=left))


RELATIVES = """
        class Saves:
            def save(self):
                self.save_parts()
            def save_parts(self):
                print("saved")

        class Model(Saves):
            def save_parts(self):
                dist.barrier()

        class Tokenizer(Saves):
            def save_parts(self):
                print("tokens")

        def main(rank, thing: {cls}):
            if rank == 0:
                thing.save()
"""


def test_an_inherited_method_calls_what_its_own_class_overrides(tmp_path: Path) -> None:
    check_pair(Pair("call-under-branch", RELATIVES.format(cls="Model"), RELATIVES.format(cls="Tokenizer")), tmp_path)


MADE = """
        class Store:
            def __init__(self, path):
                self.path = path
            @classmethod
            def at(cls, path){returns}:
                return cls(path)
            def beside(self, name):
                return Store(self.path + name)
            @property
            def parent(self):
                return Store("..")
            def flush(self):
                {flushes}

        class Other:
            def flush(self):
                pass

        def main(rank):
            store = {made}
            if rank == 0:
                store.flush()
"""
WAYS = ("Store.at('x')", "Store('x').beside('y')", "Store('x').parent", "Store.at('x').beside('y')")


@for_each("made", WAYS)
def test_the_class_of_what_methods_and_properties_return_is_known(made: str, tmp_path: Path) -> None:
    found, silent = (MADE.format(made=made, returns="", flushes=done) for done in ("dist.barrier()", "pass"))
    check_pair(Pair("call-under-branch", found, silent), tmp_path)


def test_a_class_for_some_parameters_and_self_are_classes_in_annotations(tmp_path: Path) -> None:
    found, silent = (
        MADE.format(made="Store.at('x')", returns=" -> Self", flushes=done) for done in ("dist.barrier()", "pass")
    )
    check_pair(Pair("call-under-branch", found, silent), tmp_path)
    generic = RELATIVES.replace("thing: {cls}", "thing: {cls}[int]")
    check_pair(Pair("call-under-branch", generic.format(cls="Model"), generic.format(cls="Tokenizer")), tmp_path)


OBSERVERS = """
        class Observer:
            def sync(self):
                return []

        class Shared(Observer):
            def sync(self):
                dist.all_reduce(self.x)

        def sync_all(names, observers: dict[str, Observer]):
            for name in {names}:
                observers[name].sync()
"""


def test_an_order_of_its_own_matters_if_an_element_may_communicate(tmp_path: Path) -> None:
    found, silent = OBSERVERS.format(names="set(names)"), OBSERVERS.format(names="sorted(set(names))")
    check_pair(Pair("order-differs", found, silent), tmp_path)


NESTED = """
        def reduce(data):
            if isinstance(data, dict):
                return {{name: reduce(part) for name, part in data.items()}}
            dist.all_reduce(data)
            return data

        def main(loader, model):
            seen = {{}}
            for batch in loader:
                if batch["mask"].sum().item() == 0:
                    {skips}
                seen["loss"] = model(batch)
            reduce(seen)
"""


def test_a_function_that_calls_itself_for_each_part_communicates_once_per_part(tmp_path: Path) -> None:
    check_pair(
        Pair("loop-count-differs", NESTED.format(skips="continue"), NESTED.format(skips="print('empty')")), tmp_path
    )


REPORTS = """
        from datetime import datetime

        class Reporter:
            def __init__(self):
                self.last = datetime.now()
            def step(self, x, step):
                elapsed = (datetime.now() - self.last).total_seconds()
                if {asks}:
                    return
                dist.all_reduce(x)
                print(elapsed)
"""


def test_seconds_between_two_looks_at_the_clock_differ(tmp_path: Path) -> None:
    found, silent = REPORTS.format(asks="elapsed < 10"), REPORTS.format(asks="step % 10")
    check_pair(Pair("exit-before-collective", found, silent), tmp_path)
