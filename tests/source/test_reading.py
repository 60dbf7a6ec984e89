"""Files that are no ordinary source: a clear note, never a crash, and the rest is read."""

import os
from pathlib import Path

from forkpoint.lint import Options, lint
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from looping import for_each

BAD = {
    "a syntax error": b"def f(:\n",
    "Python 2": b"print 'hello'\n",
    "a wrong encoding": b"# coding: ascii\nname = '\xff'\n",
    "an unknown encoding": b"# coding: klingon\n",
    "an encoding that is not of text": b"# coding: rot13\nx = 1\n",
    "NUL bytes": b"x = 1\0\n",
    "a notebook under a wrong name": b'{"cells": [], "nbformat": 4,\n',
    "very deep nesting": b"x = " + b"(" * 300 + b"1" + b")" * 300 + b"\n",
    "deep calls": b"x = " + b"f(" * 95 + b"1" + b")" * 95 + b"\n",
}


@for_each("what", BAD)
def test_it_is_noted_and_the_rest_is_read(what: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_bytes(BAD[what])
    (tmp_path / "good.py").write_text("import torch.distributed as dist\ndef f(x):\n    dist.all_reduce(x)\n")

    program = read_program([str(tmp_path)])

    assert [Path(note.file).name for note in program.notes] == ["bad.py"]
    assert "None" not in program.notes[0].text
    assert len(analyse(program).communication.reaches) == 1


def test_a_notebook_is_noted_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "explore.ipynb").write_text('{"cells": []}')

    (note,) = read_program([str(tmp_path)]).notes

    assert "nbconvert" in note.text


def test_a_function_of_ten_thousand_lines_is_read(tmp_path: Path) -> None:
    body = "".join(f"    x = x + {n}\n    if x > {n}:\n        x = step(x)\n" for n in range(3500))
    (tmp_path / "long.py").write_text(f"import torch.distributed as dist\ndef f(x):\n{body}    dist.all_reduce(x)\n")

    analysis = analyse(read_program([str(tmp_path)]))
    (function,) = [f for f in analysis.program.functions() if f.name == "f"]

    assert len(analysis.differences.facts(function).tests) == 3500


def test_a_long_chain_of_elif_is_read(tmp_path: Path) -> None:
    chain = "".join(f"    elif x == {n}:\n        dist.barrier()\n" for n in range(90))
    (tmp_path / "chain.py").write_text(f"import torch.distributed as dist\ndef f(x):\n    if x:\n        pass\n{chain}")

    program = read_program([str(tmp_path)])

    assert program.notes == []
    assert lint(program, Options()).notes == ()
    assert analyse(program).communication.reaches


NEWER = {
    "type parameters": ("def first[T: list[int]](xs: T) -> T:\n    return xs\n", 0),
    "a generic class": ("class Box[T]:\n    pass\n", 0),
    "a type alias": ("type Pair[T] = tuple[T, T]\n", 0),
    "exceptions without parentheses": ("try:\n    pass\nexcept OSError, ValueError:\n    pass\n", 0),
    "a template string": ("def name(d):\n    return t'{d}'\n", 0),
    "quotes inside an f-string": ("def name(d):\n    return f'{d['a']}'\n", 1),
    "something that no Python knows": ("def odd():\n    let x = 3\n    return x\n", 1),
}


@for_each("what", NEWER)
def test_newer_syntax_does_not_hide_the_rest_of_the_file(what: str, tmp_path: Path) -> None:
    source, left_out = NEWER[what]
    rest = "import torch.distributed as dist\ndef f(x):\n    if dist.get_rank() == 0:\n        dist.all_reduce(x)\n"
    (tmp_path / "new.py").write_text(source + rest)

    report = lint(read_program([str(tmp_path)]), Options())

    assert [v.line for v in report.violations] == [source.count("\n") + 4]
    # A newer Python than the one that this was written for reads all of it.
    assert len(report.notes) <= left_out


def test_a_link_to_nowhere_and_a_loop_of_links_do_not_stop_it(tmp_path: Path) -> None:
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing.py")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "good.py").write_text("x = 1\n")

    program = read_program([str(tmp_path)])

    assert [Path(p).name for p in program.modules] == ["good.py"]
    assert [Path(note.file).name for note in program.notes] == ["gone.py"]


def test_a_module_is_found_by_the_end_of_the_path_it_had_where_the_job_ran(tmp_path: Path) -> None:
    for name in ("a/train.py", "b/train.py", "b/util.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    program = read_program([str(tmp_path)])

    found = program.module_at("/mnt/job/7/b/train.py")

    assert found is not None
    assert found.path.endswith("b/train.py")
    assert program.module_at("/mnt/job/7/train.py") is None
    assert program.module_at("/mnt/other.py") is None


@for_each("annotation", [r"A\x00B", "(" * 400, " | ".join(["A"] * 5000)], ids=["NUL", "brackets", "long"])
def test_a_type_in_quotes_that_cannot_be_read_is_left_out(annotation: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"import torch.distributed as dist\nclass A:\n    def sync(self):\n        dist.barrier()\n"
        f"def f(x: '{annotation}', y: 'A'):\n    x.sync()\n    y.sync()\n"
    )

    assert len(analyse(read_program([str(tmp_path)])).communication.reaches) > 0


def test_of_more_source_than_can_be_held_the_files_in_the_stacks_are_read_and_the_rest_is_noted(tmp_path: Path) -> None:
    for name in "abcyz":
        (tmp_path / f"{name}.py").write_text(f"{name} = 1\n" * (400 if name == "y" else 100))

    program = read_program([str(tmp_path)], most=900, first={"y.py", "z.py"})

    assert [Path(file).name for file in program.modules] == ["z.py", "a.py", "b.py", "c.py"]
    assert "1 of 5 files were not read" in program.notes[0].text
    assert [Path(file).name for file in read_program([str(tmp_path)], most=650, first={"z.py"}).modules] == [
        "z.py",
        "a.py",
        "b.py",
    ]
    assert len(read_program([str(tmp_path)], most=2400).modules) == 5


def test_a_pipe_with_the_name_of_a_module_is_noted_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")

    assert "not a file" in read_program([str(tmp_path)]).notes[0].text
