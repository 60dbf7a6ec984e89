"""Filters of plain data: where they are, whose data they see, and what may be missing from it."""

import ast
import builtins
from importlib.machinery import SourceFileLoader

import pytest

from forkpoint.rehearse.decisions import Decisions, yields_by_data
from forkpoint.rehearse.inside.notes import fingerprint
from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.inside.user_code import open_filters
from forkpoint.rehearse.listening import Listener
from forkpoint.rehearse.model import Calm, CodeSite, RankUses, Use, UseKind
from forkpoint.rehearse.perturbations.batches import OneBatchFewer
from forkpoint.rehearse.perturbations.samples import SLICE, OneSampleFewer, SmallSamples, is_batch
from looping import for_each

SOURCE = """import torch.distributed as dist

def kept(texts):
    return [text for text in texts if text]

def all_of(texts):
    return [text for text in texts]

def by_rank(texts, rank):
    return [text for n, text in enumerate(texts) if n % 4 == rank]

def agreed(text):
    dist.all_reduce(text)
    return text

def together(texts):
    return [text for text in texts if agreed(text)]

def lengths(texts):
    found = []
    for text in texts:
        size = len(text)
        if size > 3:
            continue
        found.append(size)
    return found

def items(values: list[int], table: dict[str, int]):
    mask = Mask()
    table["b"] = table["a"]
    values[0] += 1
    del values[-1]
    return values[mask], values[1:], table["b"], values[len(values) - 1]
"""


YIELDS = """
def filtered(rows):
    for row in rows:
        if row is not None:
            yield row

def skipping(rows):
    for row in rows:
        if row is None:
            continue
        yield row

def packed(rows, size):
    pack = []
    for row in rows:
        pack.append(row)
        if len(pack) == size:
            yield pack
            pack = []

def every(rows):
    for row in rows:
        yield row

def shared_out(rows, rank):
    for number, row in enumerate(rows):
        if number % 4 == rank:
            yield row

def once(row):
    if row:
        yield row
"""


class Shortens(Listener):
    def __init__(self):
        self.heard, self.parts = [], []

    def kept(self, site, values):
        self.heard.append(site.line)
        return values[:-1]

    def each(self, site, values):
        self.heard.append(site.line)
        next(values)
        return values

    def selecting(self, site, mask):
        self.heard.append(site.line)
        return slice(0)

    def taken(self, site, items):
        self.parts.append((site.line, items))
        return items


class Mask:
    """As a tensor of truth values."""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The names of a user's module, and who heard what was filtered."""
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    for name in (
        "__forkpoint_kept__",
        "__forkpoint_each__",
        "__forkpoint_item__",
        "__forkpoint_yielding__",
        "__forkpoint_bound__",
    ):
        monkeypatch.setattr(builtins, name, None, raising=False)
    path = tmp_path / "prog.py"
    path.write_text(SOURCE.replace("import torch.distributed as dist", ""))
    listener = Shortens()
    open_filters(listener, CodePlaces((str(tmp_path),)), lambda index: isinstance(index, Mask), lambda *_: None)
    names = {"Mask": Mask}
    exec(SourceFileLoader("prog", str(path)).get_code("prog"), names)
    return names, listener


def test_a_filter_is_heard_at_its_line_and_may_lose_some(program):
    names, listener = program

    assert names["kept"](["a", "", "b", "c"]) == ["a", "b"]
    assert names["lengths"](["a", "bb", "long"]) == [2]
    assert listener.heard == [4, 21]


def test_what_a_mask_selects_is_heard_and_other_items_stay_what_they_are(program):
    names, listener = program

    assert names["items"]([1, 2, 3, 4], {"a": 5}) == ([], [2, 3], 5, 3)
    assert listener.heard == [33]


def test_a_list_that_filters_nothing_is_left_alone(program):
    names, listener = program

    assert names["all_of"](["a", "b"]) == ["a", "b"]
    assert listener.heard == []


@for_each("line, alone", [(4, True), (10, False), (17, False), (21, True), (7, False)])
def test_a_filter_by_rank_or_with_other_ranks_is_not_a_matter_of_this_ranks_data(tmp_path_factory, line, alone):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(SOURCE)

    assert Decisions([str(folder)]).filters_alone(CodeSite("train.py", line, "")) is alone


@for_each(
    "values, plain",
    [
        (["a", "b"], True),
        ([{"text": "a", "label": 1}], True),
        ([("a", 0.5)], True),
        ([0, 1, 2], False),
        ([object()], False),
        ([], False),
    ],
)
def test_plain_data_is_told_from_numbers_of_ranks_and_from_objects(values, plain):
    assert (fingerprint(values) is not None) is plain


def calm(*contents, least="20"):
    facts = {"plain": "1", "least": least}
    uses = [Use(UseKind.FILTER, CodeSite("train.py", 4, "kept"), "list", 1, (content,), facts) for content in contents]
    return Calm(tuple(RankUses(rank, 4, 1, 0, (use,)) for rank, use in enumerate(uses)), 1.0, complete=True)


@for_each(
    "told, found",
    [(calm(1.0, 2.0), 2), (calm(1.0, 1.0), 0), (calm(1.0, 2.0, least="9"), 0)],
    ids=["each rank's own", "the same on all", "few"],
)
def test_only_data_that_are_each_ranks_own_can_be_fewer_on_one(tmp_path_factory, told, found):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(SOURCE)

    assert len([*OneSampleFewer.find(told, Decisions([str(folder)]))]) == found


def test_a_generator_counts_by_data_where_a_test_in_its_loop_decides_what_it_yields():
    found = [function.name for function in ast.parse(YIELDS).body if yields_by_data(function)]

    assert found == ["filtered", "skipping", "packed"]


@for_each(
    "part, is_one",
    [
        ([[1, 2, 3], [4]], True),
        ([{"text": "abc"}, {"text": "a"}], True),
        ([[1, 2], [3, 4]], False),  # of one size
        ([("layer", 8), ("head", 24)], False),  # names with sizes
        (["abc", "a"], False),  # words of a command line
        ([[1, 2, 3]], False),
    ],
)
def test_a_part_of_a_list_is_a_batch_if_it_has_samples_that_differ_in_size(part, is_one):
    assert is_batch(part) is is_one


def sliced(*contents):
    """The kinds of small samples for a part of a list whose first content was this on each rank."""
    facts = [{"by_data": "0", "uneven": "1", "content": content} for content in contents]
    use = [Use(UseKind.GENERATOR, CodeSite("train.py", 9, "main"), SLICE, 4, (4.0,), told) for told in facts]
    calm = Calm(tuple(RankUses(n, len(use), 5, 5, (one,)) for n, one in enumerate(use)), 1.0, complete=True)
    assert not list(OneBatchFewer.find(calm, Decisions([])))
    return {(target.ranks, target.settings["which"]) for target in SmallSamples.find(calm, Decisions([]))}


def test_a_batch_that_is_part_of_a_list_has_other_samples_only_where_each_rank_has_its_own():
    assert sliced("1", "2") == {((0, 1), which) for which in ("smallest", "shorter", "largest")}
    assert sliced("1", "1") == set()


def test_a_part_of_a_list_is_heard_unless_it_is_the_share_of_a_rank(tmp_path, program):
    _, listener = program
    script = tmp_path / "parts.py"
    script.write_text("""\
def parts(texts, rank, step):
    share = texts[rank * 2 : rank * 2 + 2]
    own = texts[rank::4]
    batch = texts[step : step + 2]
    return share, own, batch, "abcd"[1:], texts[0]
""")
    names = {}
    exec(SourceFileLoader("parts", str(script)).get_code("parts"), names)

    assert names["parts"]([1, 2, 3, 4, 5], 1, 1) == ([3, 4], [2], [2, 3], "bcd", 1)
    assert listener.parts == [(4, [2, 3])]
