"""What is offered, and what is not, in programs of a few lines."""

import ast
from pathlib import Path

import pytest

from forkpoint.model.incident import Divergence, PartingKind
from forkpoint.model.world import ProcessGroup
from forkpoint.remedies.scene import Scene
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from forkpoint.source.bridge.fork import ForkKind
from looping import for_each
from remedies.forks import offered_at
from remedies.offered import apply_patch

SKIPS = """\
import torch
import torch.distributed as dist


def train(model, batches):
    for step in range(10):
        loss = model(step)
        if torch.isnan(loss):
            continue
        dist.all_reduce(loss)
"""


def written(folder: Path, text: str, name: str = "train.py") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder


@for_each("name", ["train.py", "my train.py", "größe.py", 'a "b".py'])
@for_each("end", ["\n", "\r\n"])
def test_patches_keep_line_ends_and_any_file_name(name: str, end: str, tmp_path: Path) -> None:
    text = SKIPS.replace("\n", end)
    _, fixes = offered_at(written(tmp_path, text, name), ForkKind.LEFT, 8, file=name)
    assert fixes[0].patch

    apply_patch(fixes[0].patch, tmp_path)

    after = (tmp_path / name).read_bytes().decode()
    assert f"        if any_rank(torch.isnan(loss)):{end}" in after
    assert after.count("\n") == after.count(end)


def test_a_file_without_a_last_line_end_can_be_patched(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\n\n\ndef f(rank, x):\n    if rank == 0:\n        dist.all_reduce(x)"
    _, fixes = offered_at(written(tmp_path, text), ForkKind.SKIPPED, 5)
    assert fixes[0].patch

    apply_patch(fixes[0].patch, tmp_path)

    assert (tmp_path / "train.py").read_text().endswith("def f(rank, x):\n    dist.all_reduce(x)\n")


def test_a_file_indented_by_tabs_and_with_a_byte_order_mark_can_be_patched(tmp_path: Path) -> None:
    probes, _ = offered_at(written(tmp_path, "\ufeff" + SKIPS.replace("    ", "\t")), ForkKind.LEFT, 8)
    assert probes[0].patch

    apply_patch(probes[0].patch, tmp_path)

    after = (tmp_path / "train.py").read_bytes()
    ast.parse(after)
    assert b"\n    " not in after
    assert after.startswith(b"\xef\xbb\xbf")


def test_a_handler_in_one_line_is_probed_in_that_line(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\n\n\ndef f(x):\n    try: x.load()\n    except OSError: pass\n"
    probes, _ = offered_at(written(tmp_path, text), ForkKind.CAUGHT, 6)
    assert probes[0].patch

    apply_patch(probes[0].patch, tmp_path)

    assert "    except OSError: raise BaseException(" in (tmp_path / "train.py").read_text()


def test_a_file_that_changed_since_it_was_read_gets_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, SKIPS)
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"something else")
    probes, fixes = offered_at(tmp_path, ForkKind.LEFT, 8)

    assert probes == []
    assert [fix.patch for fix in fixes] == [None]


def test_two_forks_that_explain_it_equally_get_a_probe_each(tmp_path: Path) -> None:
    text = SKIPS + "        if loss.item() > 3:\n            continue\n        dist.all_reduce(loss)\n"
    probes, _ = offered_at(written(tmp_path, text), ForkKind.LEFT, 8, 11)

    assert {probe.where for probe in probes} >= {"train.py:8"}
    assert len({probe.patch for probe in probes}) == len(probes)


PAIRED = """\
import torch.distributed as dist


def get(rank, path):
    if rank != 0:
        dist.barrier()
    build(path)
    if rank == 0:
        dist.barrier()
"""


def test_a_call_that_stands_in_two_branches_on_the_rank_is_neither_compared_nor_moved(tmp_path: Path) -> None:
    probes, fixes = offered_at(written(tmp_path, PAIRED), ForkKind.SKIPPED, 5)

    assert probes == []
    assert [fix.patch for fix in fixes] == [None]


def test_work_of_one_rank_that_talks_to_nobody_is_not_compared(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\n\n\ndef f(rank, x):\n    if rank == 0:\n        x.build()\n    dist.barrier()\n"
    probes, fixes = offered_at(written(tmp_path, text), ForkKind.SKIPPED, 5)

    assert probes == []
    assert [fix.patch for fix in fixes] == [None]


def test_a_call_that_writes_is_not_moved_to_all_ranks(tmp_path: Path) -> None:
    text = """\
import torch.distributed as dist


def keep(x, path):
    dist.all_reduce(x)
    x.save(path)


def f(rank, x):
    if rank == 0:
        keep(x, "here")
"""
    _, fixes = offered_at(written(tmp_path, text), ForkKind.SKIPPED, 10)

    assert [fix.patch for fix in fixes] == [None]


def test_rounds_that_are_known_by_a_key_are_not_cut(tmp_path: Path) -> None:
    text = """\
import torch.distributed as dist


def f(sums, names):
    for name in names:
        dist.all_reduce(sums[name])
"""
    _, fixes = offered_at(written(tmp_path, text), ForkKind.LOOP, 5)

    assert [fix.patch for fix in fixes] == [None]


def test_a_name_that_the_program_uses_already_is_not_taken(tmp_path: Path) -> None:
    _, fixes = offered_at(written(tmp_path, SKIPS + "\n\nany_rank = 3\n"), ForkKind.LEFT, 8)

    assert "if any_rank_(torch.isnan(loss)):" in (fixes[0].patch or "")


def test_a_condition_behind_a_branch_on_the_rank_is_not_agreed_upon(tmp_path: Path) -> None:
    text = """\
import torch.distributed as dist


def f(rank, loss):
    if rank == 0:
        return
    if loss.item() > 3:
        return
    dist.all_reduce(loss)
"""
    probes, fixes = offered_at(written(tmp_path, text), ForkKind.LEFT, 7)

    assert [probe.where for probe in probes] == ["train.py:5"]
    assert [fix.patch for fix in fixes] == [None]


@for_each(
    ("ranks", "written"),
    [((4, 5, 6, 7), "range(4, 8)"), ((1, 9, 17), "range(1, 18, 8)"), ((2, 3), "(2, 3)"), ((0, 1, 5), "(0, 1, 5)")],
)
def test_a_probe_is_kept_to_the_group_in_which_ranks_parted(ranks: tuple[int, ...], written: str) -> None:
    group = ProcessGroup("7", "tp_1", ranks)
    divergence = Divergence(PartingKind.ABSENCE, group, None, 1, 1, 1, (), (), ())

    scene = Scene(divergence, analyse(read_program([])), ())

    assert scene.members == f", ranks={written}"
