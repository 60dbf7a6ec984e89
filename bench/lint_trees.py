"""The bugs to find, and the Python files of a repository at one commit."""

import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_LINES = 150_000
"""Of the package that is read for a bug."""
_LARGEST_FILE = 1 << 20
"""Longer ones are tables written by a program."""


@dataclass(frozen=True, slots=True)
class Bug:
    id: str
    repo: str
    """OWNER/NAME."""
    file: str
    function: str
    scope: str
    """How far one must see to see it: intra, inter (functions), data, no."""
    root_cause: str
    buggy_commit: str
    fix_commit: str
    hunks: tuple[tuple[int, int], ...]
    """First and last lines, in the buggy revision, of what the fix changes."""


def read_bugs(path: Path) -> list[Bug]:
    """The entries that have a revision to read; an issue without one says nothing about source."""
    return [
        Bug(
            id=entry["id"],
            repo=entry["repo"],
            file=entry["file"],
            function=entry["function"],
            scope=entry["static_scope"],
            root_cause=entry["root_cause"],
            buggy_commit=entry["buggy_commit"],
            fix_commit=entry["fix_commit"],
            hunks=tuple((first, last) for first, last in entry["buggy_hunks"]),
        )
        for entry in json.loads(path.read_text())["entries"]
        if entry.get("buggy_commit")
    ]


def find_repository(repos: Path, name: str) -> Path | None:
    """The clone of OWNER/NAME, bare or not, under one of the names that people give it."""
    joined = name.replace("/", "+")
    for place in (repos / joined / "repo", repos / joined, repos / name, repos / name.rpartition("/")[2]):
        if (place / ".git").exists() or ((place / "HEAD").is_file() and (place / "objects").is_dir()):
            return place
    return None


def has_commit(repository: Path, commit: str) -> bool:
    return _git(repository, "cat-file", "-e", f"{commit}^{{tree}}").returncode == 0


def head_of(repository: Path) -> str:
    return _git(repository, "rev-parse", "HEAD").stdout.decode().strip()


def export(repository: Path, commit: str, trees: Path, name: str) -> Path:
    """The folder with the Python files of that commit. A second call finds it there."""
    folder = trees / name.replace("/", "+") / commit
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        files = Path(unfinished) / "files"
        files.mkdir()
        _unpack(repository, commit, files)
        files.rename(folder)
    return folder


def _unpack(repository: Path, commit: str, folder: Path) -> None:
    command = ["git", "-C", os.fspath(repository), "archive", "--format=tar", commit, "--", "*.py"]
    # In a clone without its largest files git complains of some that are not asked for, and goes on.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as archive:
        with tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
            for member in tar:
                if member.isfile() and member.size <= _LARGEST_FILE:
                    # Filters for extract() came with Python 3.11.4; a path in git never leads upwards.
                    path, file = folder / member.name, tar.extractfile(member)
                    assert file is not None  # a plain file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(file.read())
        if archive.wait():
            raise SystemExit(f"git archive {commit} fails in {repository}")


def count_lines(files: Iterable[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def package_of(tree: Path, file: str, most_lines: int = MOST_LINES) -> str:
    """The outermost package around a file that is not too large to read twice, or the whole tree for a script."""
    around = [folder for folder in Path(file).parents if (tree / folder / "__init__.py").is_file()]
    small = (folder for folder in reversed(around) if count_lines((tree / folder).rglob("*.py")) <= most_lines)
    return os.fspath(next(small, around[0])) if around else "."


def how_to_get(repos: Iterable[str]) -> str:
    clones = "\n".join(
        f"    git clone --bare https://github.com/{name} REPOS/{name.replace('/', '+')}" for name in sorted(set(repos))
    )
    return f"""\
The linter is measured on public repositories that are not part of this one. It needs

    make bench-lint BUGS=bugs.json REPOS=folder

BUGS: a JSON file {{"entries": [...]}}, each entry with id, repo (OWNER/NAME), file, function, static_scope (intra, inter,
data or no), root_cause, buggy_commit, fix_commit, and buggy_hunks ([[first, last], ...]: lines of the buggy revision
that the fix changes). Without it, the other parts still run: python -m bench.lint --parts repos speed --repos folder

REPOS: a folder with git repositories, bare or not, as OWNER+NAME, OWNER/NAME or NAME:

{clones}
"""


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, check=False)  # noqa: S607 - git of this machine
