"""Taps on what a program asks, without a job: who is heard, and what it is told."""

import builtins
import datetime as dt
import functools
import http.client
import json
import os
import resource
import shutil
import subprocess
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch.optim import optimizer as hooks
from torch.utils.data import DataLoader

from forkpoint.rehearse.inside.files import FileTaps, full_answers
from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.inside.taps import Taps
from forkpoint.rehearse.inside.user_code import TryTaps, loader_facts, open_filters
from forkpoint.rehearse.listening import Listener
from looping import for_each

pytestmark = pytest.mark.torch


class Contrary(Listener):
    """Says the opposite of what is so."""

    def __init__(self):
        self.asked = []

    def exists(self, site, path, there):
        self.asked.append((site.line, there))
        return not there

    def room(self, site, name, told, full):
        self.asked.append((site.line, name))
        return full(told)


def asking(folder: Path, listener: Listener):
    """A function of the user's own that asks for a file's size, inside `try` or not."""
    places = CodePlaces((str(folder),))
    stat = FileTaps(listener, places)._stat(os.stat, "stat")
    names = {"stat": stat, "guarded": TryTaps(places, listener)._guarded(stat, "stat")}
    code = "def plain(path):\n    return stat(path).st_size\n\ndef tried(path):\n    return guarded(path).st_size\n"
    exec(compile(code, str(folder / "prog.py"), "exec"), names)
    return names


@pytest.mark.parametrize("how", ["plain", "tried"])
def test_a_file_that_is_not_there_looks_like_a_new_one_and_the_other_way_round(tmp_path: Path, how: str) -> None:
    listener, there = Contrary(), tmp_path / "there"
    there.write_text("x")
    ask = asking(tmp_path, listener)[how]

    assert ask(str(tmp_path / "not there")) > 0
    with pytest.raises(FileNotFoundError, match="there"):
        ask(str(there))
    line = 2 if how == "plain" else 5
    assert listener.asked == [(line, False), (line, True)]


def test_what_a_library_asks_is_told_as_it_is(tmp_path: Path) -> None:
    listener = Contrary()
    stat = asking(tmp_path, listener)["stat"]

    assert stat(str(tmp_path)).st_mode == tmp_path.stat().st_mode
    assert listener.asked == []


@for_each("question", ["shutil.disk_usage(folder).free", "os.statvfs(folder).f_bavail"])
def test_a_rank_may_be_told_that_nothing_is_left(tmp_path_factory, question):
    folder = tmp_path_factory.mktemp("job")
    listener, places = Contrary(), CodePlaces((str(folder),))
    owners = {"shutil": types.SimpleNamespace(), "os": types.SimpleNamespace()}
    for (owner, name), full in full_answers().items():
        if owner in (shutil, os):
            setattr(owners[owner.__name__], name, FileTaps(listener, places)._room(full)(getattr(owner, name), name))
    code = f"def left(folder):\n    return {question}\n"
    exec(compile(code, str(folder / "prog.py"), "exec"), owners)

    assert owners["left"](str(folder)) == 0
    assert [line for line, _ in listener.asked] == [2]


def test_a_full_memory_is_as_large_as_the_machines():
    full = full_answers()[resource, "getrusage"]
    told = resource.getrusage(resource.RUSAGE_SELF)

    assert full(told).ru_maxrss > told.ru_maxrss
    assert full(told).ru_utime == told.ru_utime


COLLATES = """def drops(samples):
    return [sample for sample in samples if sample is not None]

def keeps(samples):
    return samples

class Padder:
    def __call__(self, samples):
        return [sample for sample in samples if sample]
"""


def test_a_collate_function_can_drop_samples_only_if_it_filters(tmp_path: Path) -> None:
    path, names = tmp_path / "prog.py", {}
    path.write_text(COLLATES)
    exec(compile(COLLATES, str(path), "exec"), names)
    made = [names["drops"], names["keeps"], names["Padder"](), functools.partial(names["drops"]), None]
    places = CodePlaces((str(tmp_path),))

    facts = [loader_facts(DataLoader([1, 2], collate_fn=collate), 0, places) for collate in made]

    assert [found.drops for found in facts] == [True, False, True, True, False]
    assert [found.own_collate for found in facts] == [True, True, True, True, False]


def test_masks_of_the_users_code_are_heard_and_those_of_libraries_are_not(tmp_path: Path, monkeypatch) -> None:
    class Nothing(Listener):
        def __init__(self):
            self.asked = []

        def selecting(self, site, mask):
            self.asked.append(site.line)
            return torch.zeros_like(mask)

    for name in ("masked_select", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
    listener, names = Nothing(), {}
    Taps(listener, CodePlaces((str(tmp_path),)), on_join=lambda: None, on_step=lambda _: None)._on_masks()
    code = "def chosen(x):\n    return len(x.masked_select(x > 1)), len((x > 1).nonzero())\n"
    exec(compile(code, str(tmp_path / "prog.py"), "exec"), names)
    values = torch.arange(4)

    assert names["chosen"](values) == (0, 0)
    assert listener.asked == [2, 2]
    assert len(values.masked_select(values > 1)) == 2


def test_a_tapped_tensor_is_no_sequence_to_torch(tmp_path: Path) -> None:
    code = """
import torch
from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.inside.taps import Taps
from forkpoint.rehearse.listening import Listener

Taps(Listener(None), CodePlaces(("/nowhere",)), on_join=lambda: None, on_step=lambda _: None).open_all()
print(torch.tensor([torch.ones(3).sum(), 4.0]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout == "tensor([3., 4.])\n", done.stderr


def test_a_date_comes_from_the_clock_that_the_user_is_told(tmp_path: Path) -> None:
    class Ahead(Listener):
        def __init__(self):
            pass

        def clock(self, site, name, value):
            return value + 3600

    taps = Taps(Ahead(), CodePlaces((str(tmp_path),)), on_join=lambda: None, on_step=lambda _: None)
    calendar = taps._calendar(dt.datetime, "datetime")
    names = {"datetime": calendar, "UTC": dt.UTC}
    code = "def asked():\n    return datetime.now(UTC), datetime.utcnow().replace(tzinfo=UTC)\n"
    exec(compile(code, str(tmp_path / "prog.py"), "exec"), names)
    before = dt.datetime.now(dt.UTC)
    late = before + dt.timedelta(minutes=59)

    assert [told > late for told in names["asked"]()] == [True, True]
    assert calendar.now(dt.UTC) < late  # asked by a library
    assert isinstance(before, calendar)
    assert calendar(2026, 1, 2, tzinfo=dt.UTC) < before.replace(year=2027)


def test_a_step_of_an_optimizer_inside_another_is_no_step_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr(hooks, "_global_optimizer_pre_hooks", type(hooks._global_optimizer_pre_hooks)())
    monkeypatch.setattr(hooks, "_global_optimizer_post_hooks", type(hooks._global_optimizer_post_hooks)())
    monkeypatch.setattr(torch.distributed, "init_process_group", torch.distributed.init_process_group)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "init_process_group", torch.distributed.init_process_group)
    steps, weights = [], [torch.zeros(1, requires_grad=True)]
    Taps(Listener(None), CodePlaces(()), on_join=lambda: None, on_step=steps.append).open_least(cpu=False)
    inner = torch.optim.SGD(weights)

    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            inner.step()

    outer = Outer(weights)
    outer.step()
    outer.step()
    inner.step()

    assert steps == [1, 2, 3]


TRIED = """\
def asks(connection):
    try:
        connection.request("POST", "/rows")
    except OSError:
        return "no answer"

def refused(connection):
    try:
        connection.request("POST", "/rows")
    except HTTPException:
        return "refused"

def looks_up(rows):
    try:
        return rows.index("a")
    except ValueError:
        return None

def odd(connection):
    try:
        connection.request("POST", "/rows")
    except ValueError:
        return None

def writes(stream):
    try:
        stream.write("a")
    except OSError:
        return "full"

def formats(names):
    try:
        return names.format(1)
    except OSError:
        return None
"""


class Fails(Listener):
    """Raises what is caught, and remembers where."""

    def __init__(self):
        self.heard = []

    def guarded(self, site, call, catches):
        self.heard.append((site.line, call))
        raise catches[0]("not there")


def test_a_method_of_a_library_fails_where_the_program_expects_an_error_of_that_library_or_of_the_system(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    names = {"HTTPException": http.client.HTTPException}
    for name in ("kept", "each", "item", "yielding", "bound", "slice"):
        monkeypatch.setattr(builtins, f"__forkpoint_{name}__", None, raising=False)
    script = tmp_path / "prog.py"
    script.write_text(TRIED)
    listener, places = Fails(), CodePlaces((str(tmp_path),))
    open_filters(listener, places, lambda _: False, TryTaps(places, listener).tell_method)
    exec(SourceFileLoader("prog", str(script)).get_code("prog"), names)

    class Connection(http.client.HTTPConnection):
        def request(self, *_):
            return None

    Connection.__module__ = "http.client"
    connection = Connection("localhost")

    assert (names["asks"](connection), names["refused"](connection)) == ("no answer", "refused")
    assert names["odd"](connection) is None
    assert (names["looks_up"](["a"]), names["formats"]("{}")) == (0, "1")
    with (tmp_path / "rows").open("w") as stream:
        assert names["writes"](stream) == "full"
    assert listener.heard == [(3, "request"), (9, "request"), (27, "write")]


def test_a_function_that_only_computes_has_no_error_of_the_system(tmp_path):
    script = tmp_path / "prog.py"
    script.write_text("""\
def shows(value):
    try:
        return guarded(value)
    except OSError:
        return "full"

def counts(value):
    try:
        return guarded(value)
    except ValueError:
        return "no number"
""")
    listener, places = Fails(), CodePlaces((str(tmp_path),))
    trying = TryTaps(places, listener)
    names = {"guarded": trying._guarded(int, "int")}
    exec(compile(script.read_text(), str(script), "exec"), names)

    assert (names["shows"]("1"), names["counts"]("1")) == (1, "no number")
    names["guarded"] = trying._guarded(json.dumps, "dumps")
    assert names["shows"]("1") == '"1"'
    names["guarded"] = trying._guarded(json.load, "load")
    assert names["shows"](None) == "full"
