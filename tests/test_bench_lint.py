"""The benchmark of the linter counts as a hit what is at the fault, and as gone what the fix removes."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.lint import main
from bench.lint_score import Score, score
from bench.lint_tool import Linter, Related, Violation
from bench.lint_trees import Bug, export, find_repository, package_of
from looping import for_each

FAULT = 20
BUG = Bug("b", "org/tool", "pkg/a.py", "f", "intra", "only rank 0 enters", "1", "2", ((FAULT, FAULT + 2),))

# Finds what the source tells it to find: a comment `# FLAG {...}` with the fields that matter.
FAKE = """\
import json, os, pathlib, sys
advisory = "--advisory" in sys.argv
paths = [pathlib.Path(name) for name in sys.argv[1:] if not name.startswith("--")]
files = sorted({file for path in paths for file in path.rglob("*.py")})
violations, lines = [], 0
for file in files:
    for number, text in enumerate(file.read_text().splitlines(), 1):
        lines += 1
        if "# HANG" in text:
            import time
            time.sleep(3600)
        if "# CRASH" in text:
            sys.exit("internal error")
        if "# FLAG" in text:
            base = {"rule": "r", "file": "./" + str(file), "line": number, "end_line": number + 9, "function": "f",
                    "message": f"at {number}", "condition": None, "why": None, "advisory": False, "related": []}
            violations.append(base | json.loads(text.partition("# FLAG")[2] or "{}"))
violations = [each for each in violations if advisory or not each["advisory"]]
seen = pathlib.Path(os.environ["XDG_CACHE_HOME"], "seen")
notes = [{"file": "", "text": "cached"}] if seen.exists() else []
seen.touch()
print(json.dumps({"schema": "forkpoint.lint/1", "violations": violations, "notes": notes,
                  "files": len(files), "lines": lines}))
sys.exit(bool(violations))
"""


def violation(line: int, file: str = "pkg/a.py", **fields: Any) -> Violation:
    base = {"rule": "r", "function": "f", "message": "m", "condition": None, "why": None, "advisory": False}
    return Violation(**{**base, "file": file, "line": line, "related": (), **fields})


def scored(buggy: list[Violation], fixed: list[Violation] | None = None) -> Score:
    return score(BUG, buggy, fixed or [])


@for_each(("line", "hit"), [(13, False), (14, True), (20, True), (28, True), (29, False)])
def test_a_hit_is_at_most_six_lines_from_what_the_fix_changes(line: int, hit: bool) -> None:
    assert scored([violation(line)]).is_hit == hit


def test_a_finding_on_the_same_line_of_another_file_is_no_hit() -> None:
    assert not scored([violation(FAULT, "pkg/b.py")]).is_hit


def test_a_finding_elsewhere_that_points_at_the_fault_counts_as_related_only() -> None:
    result = scored([violation(900, "pkg/b.py", related=(Related("pkg/a.py", FAULT, "called here"),))])

    assert (result.is_hit, result.is_hit_or_related) == (False, True)


def test_a_hit_that_moved_in_the_fixed_revision_is_not_gone() -> None:
    before = [violation(FAULT, condition="rank  == 0", message="line 20")]
    after = [violation(120, condition="rank == 0", message="line 120")]

    assert scored(before, after).kept == tuple(before)


def test_numbers_in_the_message_do_not_make_a_finding_another_one() -> None:
    assert scored([violation(FAULT, message="since line 12")], [violation(70, message="since line 62")]).kept


@for_each("change", [{"condition": "synced"}, {"function": "g"}, {"rule": "other"}, {"file": "pkg/b.py"}], ids=str)
def test_a_finding_that_differs_in_the_fixed_revision_does_not_keep_a_hit(change: dict[str, str]) -> None:
    after = violation(**{"line": FAULT, "condition": "rank == 0", **change})

    assert scored([violation(FAULT, condition="rank == 0")], [after]).is_gone


def test_gone_means_all_hits_and_partly_gone_means_one() -> None:
    result = scored([violation(19, condition="a"), violation(21, condition="b")], [violation(40, condition="a")])

    assert (result.is_gone, result.is_partly_gone) == (False, True)


def test_nothing_is_gone_where_the_fixed_revision_could_not_be_read() -> None:
    assert not score(BUG, [violation(FAULT)], [], fix_was_read=False).is_partly_gone


def source(**flags: str) -> str:
    """A file of 40 lines with comments on some: `source(l20="# FLAG")`."""
    return "".join(f"x = {n}  {flags.get(f'l{n}', '')}\n" for n in range(1, 41))


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(repository: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "change")
    return git(repository, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repos" / "org+tool"
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    return folder


@pytest.fixture
def linter(tmp_path: Path) -> Linter:
    script = tmp_path / "linter" / "fake"
    script.parent.mkdir()
    script.write_text(FAKE)
    return Linter((sys.executable, str(script)), 60)


def benched(tmp_path: Path, linter: Linter, bugs: dict[str, tuple[str, str]], *more: str) -> dict[str, Any]:
    """Results by id, for bugs of pkg/a.py given as their buggy and fixed commits."""
    entries = [
        {"id": name, "repo": "org/tool", "file": "pkg/a.py", "function": "f", "static_scope": "intra"}
        | {"root_cause": f"cause of {name}", "buggy_commit": buggy, "fix_commit": fixed, "buggy_hunks": [[20, 22]]}
        for name, (buggy, fixed) in bugs.items()
    ]
    issue_only = {"id": "issue", "repo": "org/gone", "static_scope": "no", "buggy_commit": None}
    (tmp_path / "bugs.json").write_text(json.dumps({"entries": [*entries, issue_only]}))
    places = ["--bugs", tmp_path / "bugs.json", "--repos", tmp_path / "repos", "--cache", tmp_path / "cache"]
    result = tmp_path / "result.json"
    command = ["--linter", shlex.join(linter.command), "--json", str(result), "--parts", "bugs", *more]
    main([*map(str, places), *command])
    return {each["id"]: each for each in json.loads(result.read_text())["bugs"]}


def test_a_bug_is_hit_and_gone_in_exported_revisions(tmp_path: Path, repository: Path, linter: Linter, capsys) -> None:
    buggy = commit(repository, {"pkg/__init__.py": "", "pkg/a.py": source(l20='# FLAG {"condition": "rank == 0"}')})
    fixed = commit(repository, {"pkg/a.py": source()})
    still = commit(repository, {"pkg/a.py": source(l33='# FLAG {"condition": "rank == 0"}')})

    found = benched(tmp_path, linter, {"repaired": (buggy, fixed), "moved": (buggy, still), "late": (still, fixed)})

    rules = {name: each["default"] for name, each in found.items()}
    assert {name: (each["hit"], each["gone"]) for name, each in rules.items()} == {
        "repaired": (True, True),
        "moved": (True, False),
        "late": (False, False),
    }
    printed = capsys.readouterr().out
    assert "| intra | 3 | 2 of 3 (67%) | 1 of 2 (50%) |" in printed
    assert "- late (intra): cause of late" in printed


def test_advisory_findings_count_only_with_advisory_rules(tmp_path: Path, repository: Path, linter: Linter) -> None:
    buggy = commit(repository, {"pkg/a.py": source(l20='# FLAG {"advisory": true}')})
    fixed = commit(repository, {"pkg/a.py": source()})

    found = benched(tmp_path, linter, {"bug": (buggy, fixed)})["bug"]

    assert (found["default"]["hit"], found["advisory"]["hit"], found["advisory"]["gone"]) == (False, True, True)


def test_the_end_of_a_finding_does_not_stretch_it_to_the_fault(
    tmp_path: Path, repository: Path, linter: Linter
) -> None:
    buggy = commit(repository, {"pkg/a.py": source(l13='# FLAG {"end_line": 30}')})
    fixed = commit(repository, {"pkg/a.py": source()})

    assert not benched(tmp_path, linter, {"bug": (buggy, fixed)})["bug"]["default"]["hit"]


def test_a_linter_that_fails_on_the_fix_leaves_its_hit_standing(
    tmp_path: Path, repository: Path, linter: Linter
) -> None:
    buggy = commit(repository, {"pkg/a.py": source(l20="# FLAG")})
    fixed = commit(repository, {"pkg/a.py": source(l1="# CRASH")})

    found = benched(tmp_path, linter, {"bug": (buggy, fixed)})["bug"]

    assert (found["default"]["hit"], found["default"]["gone"]) == (True, False)
    assert found["failure"] == "exits with 1, no JSON: internal error"


def test_a_linter_that_hangs_is_ended_and_said_to_have_failed(tmp_path: Path, linter: Linter) -> None:
    (tmp_path / "a.py").write_text("# HANG\n")

    run = Linter(linter.command, 0.5).run(tmp_path, advisory=False)

    assert run.failure == "not done after 0.5 s"


def test_one_bug_alone_lists_every_finding_of_its_file(tmp_path, repository, linter, capsys) -> None:
    buggy = commit(repository, {"pkg/a.py": source(l2="# FLAG", l20="# FLAG"), "pkg/b.py": source(l3="# FLAG")})
    fixed = commit(repository, {"pkg/a.py": source(l2="# FLAG")})

    benched(tmp_path, linter, {"bug": (buggy, fixed), "other": (fixed, buggy)}, "--only", "bug")

    printed = capsys.readouterr().out
    assert "buggy revision: 2 in this file, 3 in 80 lines" in printed
    assert "  HIT 20 r in f: at 20" in printed
    assert "      2 r in f: at 2" in printed
    assert "other" not in printed


def test_bugs_without_their_repository_or_commit_are_named_not_counted(tmp_path, repository, linter, capsys) -> None:
    real = commit(repository, {"pkg/a.py": source()})

    assert benched(tmp_path, linter, {"bug": (real, "0" * 40)}) == {}

    assert "- bug: org/tool lacks one of its commits" in capsys.readouterr().out


def test_an_export_holds_the_python_files_of_its_commit(tmp_path: Path, repository: Path) -> None:
    files = {"pkg/a.py": "a = 1\n", "top.py": "", "read.md": "no", "table.py": "#" * (1 << 21)}
    first = commit(repository, files)
    commit(repository, {"pkg/a.py": "a = 2\n"})

    tree = export(repository, first, tmp_path / "trees", "org/tool")

    assert sorted(str(file.relative_to(tree)) for file in tree.rglob("*.py")) == ["pkg/a.py", "top.py"]
    assert not (tree / "read.md").exists()
    assert (tree / "pkg/a.py").read_text() == "a = 1\n"
    assert export(tmp_path / "not asked again", first, tmp_path / "trees", "org/tool") == tree


@for_each("place", ["org+tool/repo", "org+tool", "org/tool", "tool"])
@for_each("bare", [True, False], ids=["bare", "with files"])
def test_a_repository_is_found_under_each_of_its_names(tmp_path: Path, place: str, bare: bool) -> None:
    (tmp_path / place).mkdir(parents=True)
    git(tmp_path / place, "init", "-q", *(["--bare"] if bare else []))

    assert find_repository(tmp_path, "org/tool") == tmp_path / place


def test_a_package_is_the_outermost_one_around_a_file(tmp_path: Path) -> None:
    (tmp_path / "src/tool/part/deep").mkdir(parents=True)
    (tmp_path / "src/tool/__init__.py").touch()

    assert package_of(tmp_path, "src/tool/part/deep/a.py") == "src/tool"
    assert package_of(tmp_path, "train.py") == "."


def test_well_kept_repositories_give_a_density_a_sample_and_a_speed(tmp_path, linter, capsys, monkeypatch) -> None:
    monkeypatch.setattr("bench.lint._LINES_FOR_SPEED", 30)
    nanochat = tmp_path / "repos" / "nanochat"
    nanochat.mkdir(parents=True)
    git(nanochat, "init", "-q")
    commit(nanochat, {"train.py": source(l20='# FLAG {"message": "hm"}', l21='# FLAG {"advisory": true}')})
    sample, result = tmp_path / "sample.md", tmp_path / "result.json"
    places = ["--repos", tmp_path / "repos", "--cache", tmp_path / "cache", "--sample-file", sample, "--json", result]

    main(
        [*map(str, places), "--linter", shlex.join(linter.command), "--parts", "repos", "speed", "--sample", "40"],
    )

    assert "| 40 | 1 | 75.00 |" in capsys.readouterr().out
    assert "## 1. r: karpathy/nanochat" in sample.read_text()
    assert "   20 > x = 20" in sample.read_text()
    assert "   12   x = 12" in sample.read_text()
    assert "x = 11 " not in sample.read_text()
    assert json.loads(result.read_text())["speed"]["lines"] == 40


def test_a_run_is_cold_unless_the_linter_may_keep_its_cache(tmp_path: Path, linter: Linter) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / "kept").mkdir()
    warm = Linter(linter.command, 60, keep_cache=tmp_path / "kept")

    assert [linter.run(tmp_path, advisory=False).notes for _ in range(2)] == [0, 0]
    assert [warm.run(tmp_path, advisory=False).notes for _ in range(2)] == [0, 1]


def test_without_bugs_or_repositories_it_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"git clone --bare https://github.com/pytorch/torchtitan"):
        main(["--repos", str(tmp_path / "nothing")])
