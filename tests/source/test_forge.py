"""The page of a file on its forge, from what git keeps of the checkout."""

from pathlib import Path

from forkpoint.source.forge import forge_page
from looping import for_each

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def checkout(root: Path, url: str, head: str = "ref: refs/heads/main") -> Path:
    git = root / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text(f"{head}\n")
    (git / "refs/heads/main").write_text(f"{COMMIT}\n")
    (git / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n')
    (root / "pkg").mkdir()
    file = root / "pkg" / "train.py"
    file.touch()
    return file


@for_each(
    "url, page",
    [
        ("https://github.com/o/n.git", f"https://github.com/o/n/blob/{COMMIT}/pkg/train.py"),
        ("git@github.com:o/n.git", f"https://github.com/o/n/blob/{COMMIT}/pkg/train.py"),
        ("ssh://git@gitlab.x.org/a/b/c", f"https://gitlab.x.org/a/b/c/-/blob/{COMMIT}/pkg/train.py"),
        ("/srv/git/n.git", None),
        ("https://user:secret@github.com/o/n", None),
    ],
)
def test_a_remote_that_is_a_forge_gives_the_page_at_the_commit(url: str, page: str | None, tmp_path: Path) -> None:
    assert forge_page(str(checkout(tmp_path, url))) == page


def test_without_git_there_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    assert forge_page(str(tmp_path / "train.py")) is None


def test_a_detached_head_is_its_commit(tmp_path: Path) -> None:
    file = checkout(tmp_path, "https://github.com/o/n", head="f" * 40)

    assert forge_page(str(file)) == f"https://github.com/o/n/blob/{'f' * 40}/pkg/train.py"
