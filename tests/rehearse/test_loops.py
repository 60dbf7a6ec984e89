"""Loops that give one rank their items in another order, and those that give it other items."""

import sys

from forkpoint.rehearse.inside.loop_items import LoopItems
from forkpoint.rehearse.loops import find_reordered
from forkpoint.rehearse.paths import PathFile
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from looping import for_each

SORTED = """\
def order(losses):
    names = list(losses)
    names.sort(key=losses.get)
    return names


def train(losses):
    for name in order(losses):
        step(name)
        reduce(name)
"""
LISTED = SORTED.replace("    names.sort(key=losses.get)\n", "    names = [name for name in names if losses[name]]\n")


def reordered(folder, source, before, mine, theirs):
    """What is found if the loop gave these items to ranks 1 and 0."""
    (folder / "train.py").write_text(source)
    for rank, items in ((1, mine), (0, theirs)):
        path = PathFile(str(folder), rank)
        for item in before:
            path.add(path.number_of("train.py"), 9, item)
        if rank == 1:
            path.mark()
        for item in items:
            path.add(path.number_of("train.py"), 8)
            path.add(path.number_of("train.py"), 9, item)
    return find_reordered(folder, 1, 0, analyse(read_program([str(folder)])))


@for_each(
    "before, mine, theirs",
    [
        ([1, 2, 3], [2, 1, 3], [1, 2, 3]),  # to the end of the loop
        ([1, 2, 3], [1, 3], [1, 2]),  # they stopped inside it
        ([], [1, 2], [2, 1]),  # disturbed from the beginning
    ],
)
def test_a_loop_over_sorted_items_is_told_at_the_line_that_sorts(tmp_path, before, mine, theirs):
    found = reordered(tmp_path, SORTED, before, mine, theirs)

    assert found is not None
    assert (found.line, found.sorts and found.sorts.line) == (8, 3)


def test_a_loop_that_nothing_sorts_is_told_itself_if_the_same_items_came_in_the_end(tmp_path):
    found = reordered(tmp_path, LISTED, [1, 2, 3], [3, 1, 2], [1, 2, 3])

    assert found is not None
    assert (found.line, found.sorts) == (8, None)


@for_each(
    "source, before, mine, theirs",
    [
        (LISTED, [1, 2, 3], [1, 3], [1, 2]),  # it may have left one out
        (SORTED, [1, 2, 3], [1, 4], [1, 2]),  # an item that never came before
        (SORTED, [], [1, 3], [2, 4]),  # each rank's own share of the data
        (SORTED, [1, 2, 3], [1, 2], [1, 2, 3]),  # one of them is only behind
    ],
)
def test_other_items_are_no_other_order(tmp_path, source, before, mine, theirs):
    assert reordered(tmp_path, source, before, mine, theirs) is None


def test_items_that_differed_before_the_disturbance_are_each_ranks_own(tmp_path):
    (tmp_path / "train.py").write_text(SORTED)
    for rank, items in ((1, (1, 2, 3, 4)), (0, (2, 1, 4, 3))):
        path = PathFile(str(tmp_path), rank)
        for number, item in enumerate(items):
            if rank == 1 and number == 2:
                path.mark()
            path.add(path.number_of("train.py"), 9, item)

    assert find_reordered(tmp_path, 1, 0, analyse(read_program([str(tmp_path)]))) is None


def test_texts_and_numbers_are_items_and_objects_are_none(tmp_path):
    script = tmp_path / "loops.py"
    script.write_text("""\
def run(values):
    for number, value in values:
        there = value
    for value in [object()]:
        there = value
""")
    items, seen = LoopItems(), []

    def trace(frame, event, _arg):
        if event == "line" and (item := items.item(frame)):
            seen.append((frame.f_lineno, item))
        return trace

    names = {}
    exec(compile(script.read_text(), str(script), "exec"), names)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        names["run"]([(0, "a"), (1, object()), (0, "a")])
    finally:
        sys.settrace(before)

    assert [line for line, _ in seen] == [3, 3, 3]
    assert seen[0] == seen[2] != seen[1]
