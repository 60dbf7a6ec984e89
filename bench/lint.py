"""The linter on real code: bugs it must find, well-kept repositories it must leave alone, and its speed.

    python -m bench.lint --bugs bugs.json --repos folder

Each bug's repository is exported at the buggy and at the fixed commit, as a whole, because a call may lead anywhere in
it. The linter runs once on each with `--advisory`; its findings say which of them are advisory, so the same run answers
for the default rules. Nothing of the repositories is kept in this one.
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.lint_report import (
    Linted,
    Speed,
    as_json,
    render_costs,
    render_density,
    render_kept_repositories,
    render_listing,
    render_outcomes,
    render_sample,
    render_speed,
)
from bench.lint_score import Outcome
from bench.lint_split import SIDES, Repository, read_split
from bench.lint_tool import Linter
from bench.lint_trees import (
    Bug,
    count_lines,
    export,
    find_repository,
    has_commit,
    head_of,
    how_to_get,
    package_of,
    read_bugs,
)

_LINES_FOR_SPEED = 100_000
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forkpoint-bench"


@dataclass(frozen=True, slots=True)
class Target:
    """What the linter is given: a folder, and what to read in it."""

    name: str
    tree: Path
    path: str


@dataclass(frozen=True, slots=True)
class Pair:
    bug: Bug
    buggy: Target
    fixed: Target


def prepare(bugs: Sequence[Bug], repos: Path, trees: Path, *, package_only: bool) -> tuple[list[Pair], list[str]]:
    """Both revisions of each bug, exported, and why some are left out."""
    pairs: list[Pair] = []
    left_out: list[str] = []
    for bug in bugs:
        repository = find_repository(repos, bug.repo)
        if repository is None:
            left_out.append(f"{bug.id}: {bug.repo} is not there")
        elif not (has_commit(repository, bug.buggy_commit) and has_commit(repository, bug.fix_commit)):
            left_out.append(f"{bug.id}: {bug.repo} lacks one of its commits")
        else:
            revisions: list[Target] = []
            for commit in (bug.buggy_commit, bug.fix_commit):
                tree = export(repository, commit, trees, bug.repo)
                path = package_of(tree, bug.file) if package_only else "."
                revisions.append(Target(f"{bug.repo} {commit[:10]}", tree, path))
            pairs.append(Pair(bug, *revisions))
    return pairs, left_out


def lint_pairs(pairs: Sequence[Pair], linter: Linter, jobs: int) -> tuple[list[Outcome], list[Linted]]:
    """The fix of one bug is at times the buggy revision of another: each tree is read once."""
    targets = list(dict.fromkeys(target for pair in pairs for target in (pair.buggy, pair.fixed)))

    def lint(target: Target) -> Linted:
        run = linter.run(target.tree, [target.path], advisory=True)
        _say(f"{target.name}: {run.failure or f'{len(run.violations)} findings'}, {run.cost.cpu_s:.1f} s CPU")
        return Linted(target.name, target.tree, run)

    with ThreadPoolExecutor(jobs) as pool:
        linted = dict(zip(targets, pool.map(lint, targets), strict=True))
    outcomes = [Outcome(pair.bug, linted[pair.buggy].run, linted[pair.fixed].run) for pair in pairs]
    return outcomes, list(linted.values())


def export_well_kept(wanted: Iterable[Repository], repos: Path, trees: Path) -> dict[str, Path]:
    exported: dict[str, Path] = {}
    for each in wanted:
        repository = find_repository(repos, each.name)
        if repository is None:
            _say(f"{each.name} is not there")
            continue
        commit = each.commit if has_commit(repository, each.commit) else head_of(repository)
        if commit != each.commit:
            _say(f"{each.name} lacks {each.commit[:10]}; its newest commit is read instead")
        exported[f"{each.name} {commit[:10]}"] = export(repository, commit, trees, each.name)
    return exported


def measure_speed(well_kept: Iterable[Path], trees: Path, linter: Linter) -> Speed | None:
    """Well-kept repositories together, until there are enough lines: a cold run, and one with what the first kept."""
    chosen: list[str] = []
    lines = 0
    for tree in well_kept:
        if lines < _LINES_FOR_SPEED:
            chosen.append(os.fspath(tree.relative_to(trees)))
            lines += count_lines(tree.rglob("*.py"))
    if lines < _LINES_FOR_SPEED:
        _say(f"speed is measured on {_LINES_FOR_SPEED:,} lines or more; only {lines:,} are there")
        return None
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with tempfile.TemporaryDirectory(prefix="forkpoint-lint-") as cache:
            cold, cached = (linter.run_with_cache(Path(cache), trees, chosen, advisory=False) for _ in range(2))
    finally:
        os.sched_setaffinity(0, cores)
    return Speed(lines, cold, cached)


def bench_bugs(chosen: argparse.Namespace, trees: Path, linter: Linter) -> list[Outcome]:
    pairs, left_out = prepare(_bugs(chosen), chosen.repos, trees, package_only=chosen.package_only)
    outcomes, linted = lint_pairs(pairs, linter, chosen.jobs)
    if chosen.only:
        print("\n\n".join(render_listing(outcome) for outcome in outcomes), end="\n\n")
    lines_of_files = count_lines(pair.buggy.tree / pair.bug.file for pair in pairs)
    print("## Bugs\n\n" + render_outcomes(outcomes, left_out))
    print("\n" + render_density(linted, outcomes, lines_of_files))
    print("\n" + render_costs(linted) + "\n")
    return outcomes


def bench_well_kept(chosen: argparse.Namespace, well_kept: dict[str, Path], linter: Linter) -> list[Linted]:
    linted = [Linted(name, tree, linter.run(tree, advisory=False)) for name, tree in well_kept.items()]
    print("## Well-kept repositories\n\n" + render_kept_repositories(linted) + "\n")
    if chosen.sample:
        chosen.sample_file.write_text(render_sample(linted, chosen.sample, chosen.seed))
    return linted


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parse(arguments)
    parts = ["bugs"] if chosen.only else chosen.parts
    wanted = read_split().repositories_of(chosen.side)
    if chosen.repos is None or not chosen.repos.is_dir() or ("bugs" in parts and not _is_file(chosen.bugs)):
        known = read_bugs(chosen.bugs) if _is_file(chosen.bugs) else []
        raise SystemExit(how_to_get([*(each.name for each in wanted), *(bug.repo for bug in known)]))
    trees = chosen.cache / "trees"
    linter = Linter(tuple(shlex.split(chosen.linter)), chosen.limit, chosen.cache / "linter" if chosen.warm else None)
    result: dict[str, object] = {}
    if "bugs" in parts:
        result["bugs"] = [as_json(outcome) for outcome in bench_bugs(chosen, trees, linter)]
    well_kept = export_well_kept(wanted, chosen.repos, trees) if {"repos", "speed"} & set(parts) else {}
    if "repos" in parts:
        linted = bench_well_kept(chosen, well_kept, linter)
        result["repositories"] = [{"name": each.name, **asdict(each.run)} for each in linted]
    if "speed" in parts and (speed := measure_speed(well_kept.values(), trees, linter)):
        print("## Speed\n\n" + render_speed(speed))
        result["speed"] = {"lines": speed.lines, "cold": asdict(speed.cold.cost), "cached": asdict(speed.cached.cost)}
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


def _bugs(chosen: argparse.Namespace) -> list[Bug]:
    bugs = read_bugs(chosen.bugs)
    if unknown := set(chosen.only or ()) - {bug.id for bug in bugs}:
        raise SystemExit(f"no bug with a buggy_commit is called {', '.join(sorted(unknown))}")
    if chosen.only:
        return [bug for bug in bugs if bug.id in chosen.only]
    scopes = chosen.scopes
    return [bug for bug in read_split().bugs_of(chosen.side, bugs) if not scopes or bug.scope in scopes]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    ours = shlex.join([os.fspath(Path(sys.executable).parent / "forkpoint"), "lint"])
    parser = argparse.ArgumentParser(prog="python -m bench.lint", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bugs", type=Path, help="bugs.json")
    parser.add_argument("--repos", type=Path, help="folder with git repositories, bare or not")
    parser.add_argument("--cache", type=Path, default=_CACHE, help="where exported trees are kept (%(default)s)")
    parser.add_argument("--linter", default=ours, help="command that takes --json, --advisory and paths (%(default)s)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of the linter (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="linters at the same time, for the bugs (%(default)s)")
    parser.add_argument("--parts", nargs="+", choices=("bugs", "repos", "speed"), default=["bugs", "repos", "speed"])
    parser.add_argument("--side", choices=SIDES, help="only projects of this side of lint_split.toml")
    parser.add_argument(
        "--scopes", nargs="+", metavar="SCOPE", help="only bugs of these scopes: intra, inter, data, no"
    )
    parser.add_argument("--only", nargs="+", metavar="ID", help="these bugs alone, with all findings in their files")
    parser.add_argument(
        "--package-only",
        action="store_true",
        help="read the bug's package, not the whole repository; of a very large package the part around the bug",
    )
    parser.add_argument("--warm", action="store_true", help="let the linter keep its cache: quick, but no cold times")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="findings of well-kept repositories to judge"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (%(default)s)")
    parser.add_argument("--sample-file", type=Path, metavar="FILE", help="Markdown file for the sample")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    chosen = parser.parse_args(arguments)
    if chosen.sample and not chosen.sample_file:
        parser.error("--sample needs --sample-file")
    for folder in ("repos", "cache", "bugs"):
        if (given := getattr(chosen, folder)) is not None:
            setattr(chosen, folder, given.resolve())
    return chosen


def _is_file(path: Path | None) -> bool:
    return path is not None and path.is_file()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
