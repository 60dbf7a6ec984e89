"""Patches that a model wrote: what is let through applies with git and stays where it was said to; the rest is refused."""

import ast
import subprocess
from collections.abc import Callable
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.claim_cases import with_text
from forkpoint.agent.patch_check import MAX_CHARACTERS, check_patch
from forkpoint.brief.case import Case, QuestionRefused
from looping import for_each

TRAIN = """\
import os
import torch.distributed as dist


class Trainer:
    def fit(self, loader):
        for batch in loader:
            loss = self.step(batch)
            if loss.isnan().any():
                continue
            dist.all_reduce(loss)

    def step(self, batch):
        return self.model(batch).sum()


def main(rank):
    trainer = Trainer()
    if rank == 0:
        dist.barrier()
    trainer.fit([])


main(int(os.environ["RANK"]))
"""


def diff(before: str, after: str, name: str = "train.py") -> str:
    """As a careful model would write it."""
    lines = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(unified_diff(*lines, f"a/{name}", f"b/{name}"))


def changed(old: str, new: str, text: str = TRAIN) -> str:
    assert text.count(old) == 1
    return diff(text, text.replace(old, new))


def git_takes(patch: str, folder: Path) -> bool:
    done = subprocess.run(["git", "apply", "--check", "-"], input=patch.encode(), cwd=folder, check=False)
    return done.returncode == 0


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return with_text(tmp_path, TRAIN)


GOOD = changed("                continue\n", "                loss = loss.nan_to_num()\n")


def test_a_patch_inside_a_named_function_is_shown_as_untrusted(case: Case, tmp_path: Path) -> None:
    remedy = check_patch(case, GOOD, ["Trainer.fit"])

    assert not remedy.trusted
    assert remedy.where == "train.py:10"
    assert remedy.title == "A change to `Trainer.fit` that the model wrote"
    assert "a model wrote it" in remedy.notes[0]
    assert git_takes(remedy.patch, tmp_path)
    assert (tmp_path / "train.py").read_text() == TRAIN


@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/train.py b/train.py\nindex 0123abc..4567def 100644\n" + GOOD,
        GOOD.replace("--- a/train.py", "--- a/train.py\t2026-11-15 01:02:03"),
        GOOD + "\n",
        GOOD.removesuffix("\n"),
        GOOD.replace("\n \n", "\n\n"),
    ],
)
def test_forms_of_one_patch_come_to_the_same(patch: str, case: Case) -> None:
    assert check_patch(case, patch, ["Trainer.fit"]).patch == check_patch(case, GOOD, ["Trainer.fit"]).patch


def test_several_hunks_in_several_functions_are_taken_if_all_are_named(case: Case, tmp_path: Path) -> None:
    after = TRAIN.replace("                continue\n", "                pass\n").replace(
        "    if rank == 0:\n        dist.barrier()\n", "    dist.barrier()\n"
    )
    patch = diff(TRAIN, after)

    assert git_takes(check_patch(case, patch, ["Trainer.fit", "main"]).patch, tmp_path)
    with pytest.raises(QuestionRefused, match="not in a named function"):
        check_patch(case, patch, ["Trainer.fit"])


WRONG: dict[str, tuple[str, str]] = {
    "another function": (changed("        return self.model(batch).sum()\n", "        return 0\n"), "not in a named function"),
    "top-level code": (changed("main(int(", "print(int("), "not in a named function"),
    "an import": (changed("import os\n", "import os, sys\n"), "not in a named function"),
    "a comment at the top": (changed("import os\n", "# coding: utf-7\nimport os\n"), "encoded|not in a named function"),
    "the signature": (changed("    def fit(self, loader):", "    def fit(self, loader, more=0):"), "outside the bodies"),
    "a decorator": (changed("    def fit(", "    @staticmethod\n    def fit("), "not in a named function"),
    "the name": (changed("    def fit(", "    def fits("), "not in a named function|outside the bodies"),
    "what does not parse": (changed("                continue\n", "                continue (\n"), "no longer parse"),
    "an indentation that does not parse": (changed("                continue\n", "  continue\n"), "no longer parse"),
    "a function that ends early": (changed("                continue\n", "                continue\nx = 1\n"), "parse|not in"),
    "lines that are not there": (GOOD.replace("loss = self.step(batch)", "loss = self.other(batch)"), "does not match the file"),
    "another place": (GOOD.replace("@@ -7,", "@@ -6,"), "does not match the file"),
    "wrong counts": (GOOD.replace("@@ -7,7 +7,7 @@", "@@ -7,8 +7,7 @@"), "ends in the middle|as many|none of"),
    "no counts": (GOOD.replace("@@ -7,7 +7,7 @@", "@@"), "a hunk begins with"),
    "no change": ("--- a/train.py\n+++ b/train.py\n@@ -1,1 +1,1 @@\n import os\n", "changes nothing"),
    "a new file": ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,1 @@\n+x = 1\n", "may not create or delete files"),
    "a deleted file": ("--- a/train.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-import os\n", "may not create or delete files"),
    "a new file, as git says it": ("diff --git a/n.py b/n.py\nnew file mode 100644\n" + GOOD, "not part of a plain change"),
    "a mode": ("diff --git a/train.py b/train.py\nold mode 100644\nnew mode 100755\n" + GOOD, "not part of a plain change"),
    "a renamed file": (GOOD.replace("+++ b/train.py", "+++ b/other.py"), "rename"),
    "a binary": ("diff --git a/x b/x\nGIT binary patch\nliteral 0\nHcmV?d00001\n", "not part of a plain change"),
    "a file outside": (GOOD.replace("/train.py", "/../train.py"), "not in the source"),
    "an absolute file": (GOOD.replace("a/train.py", "a//etc/passwd").replace("b/train.py", "b//etc/passwd"), "not in the"),
    "talk around it": ("Here is the fix:\n" + GOOD, "not part of a plain change"),
    "a fence": ("```diff\n" + GOOD + "```\n", "not part of a plain change"),
    "the same file twice": (GOOD + GOOD, "each once"),
    "nothing": ("", "the patch changes no file"),
    "a hidden character": (GOOD.replace("nan_to_num", "nan\u202e_to_num"), "U+202E|unprintable"),
    "a NUL": (GOOD.replace("nan_to_num", "nan\x00"), "U\\+0000"),
    "a lone surrogate": (GOOD.replace("nan_to_num", "nan\ud800"), "U\\+D800"),
    "a return of the cursor": (GOOD.replace("nan_to_num", "nan\rx"), "U\\+000D"),
    "too much": (GOOD + "\n" * MAX_CHARACTERS, "characters"),
    "an insertion behind the end": ("--- a/train.py\n+++ b/train.py\n@@ -999,0 +1000,1 @@\n+    x = 1\n", "does not match the file"),
}  # fmt: skip


@pytest.mark.parametrize(("patch", "why"), WRONG.values(), ids=WRONG)
def test_what_is_no_plain_change_of_a_named_function_is_refused(patch: str, why: str, case: Case) -> None:
    with pytest.raises(QuestionRefused, match=why):
        check_patch(case, patch, ["Trainer.fit"])


@pytest.mark.parametrize(
    "functions", [[], ["fit"], ["<module>"], ["Trainer.fit", "nothing"], ["x"] * 9, ["\x00" * 9999]]
)
def test_functions_that_the_files_do_not_have_are_refused(functions: list[str], case: Case) -> None:
    with pytest.raises(QuestionRefused):
        check_patch(case, GOOD, functions)


@pytest.mark.parametrize(
    "line",
    [
        "exec('x')",
        "eval(loader.text)",
        "os.system('ls')",
        "os.execv('/bin/sh', [])",
        "import subprocess",
        "import subprocess as harmless",
        "from os import system",
        "import socket",
        "from urllib import request",
        "import requests",
        "__import__('os')",
        "import ctypes",
        "import pickle",
        "import importlib",
        "loader.__class__.__mro__",
        "__builtins__['x']",
        "sys.modules['os'].system('x')",
        "compile('x', 'y', 'z')",
        "dist.os.popen('x')",
        "torch.hub.load('a', 'b')",
        "loader.files.system('x')",
    ],
)
def test_what_runs_fetches_or_unpacks_is_refused(line: str, case: Case) -> None:
    with pytest.raises(QuestionRefused, match="may not introduce"):
        check_patch(case, changed("                continue\n", f"                {line}\n"), ["Trainer.fit"])


@pytest.mark.parametrize("line", ["self.model.eval()", "loss = torch.compile(loss)", "input = loss", "re.compile('a')"])
def test_names_that_only_look_alike_are_not_refused(line: str, case: Case, tmp_path: Path) -> None:
    remedy = check_patch(case, changed("                continue\n", f"                {line}\n"), ["Trainer.fit"])

    assert git_takes(remedy.patch, tmp_path)


def test_what_was_there_before_may_be_moved(tmp_path: Path) -> None:
    text = "import os\n\n\ndef main(rank):\n    if rank:\n        os.system('ls')\n    rank += 1\n"
    case = with_text(tmp_path, text)
    patch = diff(text, text.replace("    if rank:\n        os.system('ls')\n", "    os.system('ls')\n"))

    assert git_takes(check_patch(case, patch, ["main"]).patch, tmp_path)
    with pytest.raises(QuestionRefused, match="may not introduce"):
        check_patch(case, diff(text, text.replace("    rank += 1\n", "    os.system('ls')\n")), ["main"])


def test_what_reaches_out_of_the_program_is_told(case: Case) -> None:
    lines = "                import json\n                open('/tmp/é', 'w')\n"
    notes = check_patch(case, changed("                continue\n", lines), ["Trainer.fit"]).notes

    assert "train.py: imports `json`" in notes
    assert "train.py: uses `open`, which can affect things outside the program" in notes
    assert "train.py: adds characters beyond ASCII" in notes


def test_a_file_that_changed_since_it_was_read_is_refused(case: Case, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + "\n")

    with pytest.raises(QuestionRefused, match="has changed since it was read"):
        check_patch(case, GOOD, ["Trainer.fit"])


def test_without_source_there_is_nothing_to_patch(case: Case) -> None:
    with pytest.raises(QuestionRefused, match="not in the source"):
        check_patch(replace(case, analysis=None), GOOD, ["Trainer.fit"])


@for_each(
    "dress",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.removesuffix("\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("    ", "\t"),
    ],
    ids=["CRLF", "no last line end", "byte order mark", "tabs"],
)
def test_files_keep_their_line_ends_and_marks(dress: Callable[[str], str], tmp_path: Path) -> None:
    head = "import os\nimport torch\n\n\n"
    text = dress(f"{head}def main(rank):\n    if rank:\n        return 1\n    rank += 1\n    return 2\n")
    after = text.replace("return 2", "return 3")
    case = with_text(tmp_path, text)
    lines = (t.splitlines(keepends=True) for t in (text, after))
    made = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in unified_diff(*lines, "a/train.py", "b/train.py")
    ]
    remedy = check_patch(case, "".join(made), ["main"])

    subprocess.run(["git", "apply", "-"], input=remedy.patch.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "train.py").read_bytes() == after.encode()


LINES = TRAIN.splitlines(keepends=True)


@given(
    st.lists(
        st.tuples(st.integers(0, len(LINES) - 1), st.sampled_from(["", "        pass\n", "    x = 1\n", "y = 2\n"])),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([["Trainer.fit"], ["main"], ["Trainer.fit", "main"], ["Trainer.step"]]),
)
def test_whatever_is_let_through_applies_and_leaves_other_code_alone(
    case: Case, tmp_path: Path, edits: list[tuple[int, str]], functions: list[str]
) -> None:
    lines = list(LINES)
    for at, text in edits:
        lines[at] = text
    after = "".join(lines)
    try:
        remedy = check_patch(case, diff(TRAIN, after), functions)
    except QuestionRefused:
        return

    assert git_takes(remedy.patch, tmp_path)
    old, new = (
        {n.name: ast.dump(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)}
        for text in (TRAIN, after)
    )
    assert {name for name in old if old[name] != new[name]} <= {f.rpartition(".")[2] for f in functions}
    assert (tmp_path / "train.py").read_text() == TRAIN
