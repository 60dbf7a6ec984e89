"""From a divergence to the place in source that let ranks part: every recorded case, and one small job per kind."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import forkpoint
from cases import CASES, verdict_of
from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.incident import Incident
from forkpoint.model.op import Frame
from forkpoint.model.verdict import Site
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from forkpoint.source.bridge import Fork, ForkKind, bridge
from looping import for_each
from small_jobs import SmallJob


@dataclass(frozen=True)
class Truth:
    number: str
    places: tuple[tuple[str, int, int], ...]
    short_of: str | None

    def holds(self, site: Site) -> bool:
        return any(site.file == file and first <= site.line <= last for file, first, last in self.places)


def _load(folder: Path) -> Truth:
    facts = tomllib.loads((folder / "case.toml").read_text())
    places = tuple((s["file"], *s["lines"]) for s in facts["truth"].get("site", ()))
    return Truth(folder.name, places, facts.get("site_short_of"))


TRUTHS = [t for folder in sorted(CASES.glob("[0-9]*")) if (t := _load(folder)).places]


@for_each("truth", TRUTHS, ids=[t.number for t in TRUTHS])
def test_the_first_site_is_the_true_one_unless_the_case_says_otherwise(truth: Truth) -> None:
    sites = verdict_of(truth.number, source=True).sites
    found = bool(sites) and truth.holds(sites[0])

    assert found is (truth.short_of is None), [(s.file, s.line, s.why) for s in sites]


def test_few_cases_fall_short() -> None:
    short = [t.number for t in TRUTHS if t.short_of]

    assert len(short) <= 0.15 * len(TRUTHS), short


@for_each("number", ["0001", "0003", "0005", "0024"])
def test_source_changes_nothing_that_was_judged(number: str) -> None:
    plain = verdict_of(number)
    told = verdict_of(number, source=True)

    for name in ("symptom", "cause", "confidence", "action", "suspects", "divergence"):
        assert getattr(plain, name) == getattr(told, name)
    assert plain.findings == tuple(
        replace(f, probes=p.probes, fixes=p.fixes) for f, p in zip(told.findings, plain.findings, strict=True)
    )


def test_a_healthy_job_has_no_sites() -> None:
    assert verdict_of("0006", source=True).sites == ()


# small jobs: lines are those of `step` in /train/train.py, which line 99 calls


def write_source(folder: Path, body: str, name: str = "train.py") -> str:
    lines = body.strip("\n").split("\n")
    (folder / name).write_text("\n".join([*lines, *[""] * (98 - len(lines)), "step(rank, x)", ""]))
    return str(folder)


def forks_of(capture: Capture, source: str) -> tuple[Fork, ...]:
    timeline = align(capture)
    incident = Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline)))
    return bridge(incident, forkpoint.diagnose(capture), analyse(read_program([source])))


def parted(odd_line: int, odd_op: str, usual_line: int, usual_op: str, before: int = 5) -> Capture:
    """All ranks reduce on line `before`; then rank 2 makes one call and the others another."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=before)
    job.op([2], odd_op, size=1, line=odd_line, done=False)
    job.op([0, 1, 3], usual_op, size=9, line=usual_line, done=False)
    return job.capture()


SKIPPED = """
import torch.distributed as dist

def step(rank, x, config=None):
    for _ in range(config.steps):
        dist.all_reduce(x)
        if config.verbose:
            if dist.get_rank() == 2:
                dist.broadcast(x, 0)
        dist.barrier()
"""


def test_the_branch_that_asks_for_the_rank_is_preferred_to_the_one_that_asks_for_the_configuration(
    tmp_path: Path,
) -> None:
    source = write_source(tmp_path, SKIPPED)
    verdict = forkpoint.diagnose(parted(8, "broadcast", 9, "barrier"), source=[source])

    first = verdict.sites[0]
    assert (first.file, first.line, first.function, first.condition) == ("train.py", 7, "step", "dist.get_rank() == 2")
    assert "dist.get_rank() == 2" in (first.why or "")
    assert "rank's own number" in (first.why or "")
    assert first.cohort is not None
    assert verdict.divergence is not None
    assert verdict.divergence.cohorts[first.cohort].ranks == (2,)


def test_a_rank_that_leaves_early_is_found_at_the_exit(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import torch, torch.distributed as dist

def step(rank, x, loss=None):
    for batch in range(10):
        dist.all_reduce(x)
        if torch.isnan(loss):
            return dist.barrier()
        dist.all_gather([x], x)
""",
    )
    fork = forks_of(parted(7, "barrier", 8, "all_gather"), source)[0]

    assert (fork.kind, fork.node.lineno) == (ForkKind.LEFT, 6)
    assert fork.reasons


def test_a_condition_that_a_collective_made_equal_explains_nothing(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import torch, torch.distributed as dist

def step(rank, x):
    for batch in range(10):
        dist.all_reduce(x)
        if torch.isnan(x.sum()):
            return dist.barrier()
        dist.all_gather([x], x)
""",
    )

    assert 6 not in [f.node.lineno for f in forks_of(parted(7, "barrier", 8, "all_gather"), source)]


def test_a_loop_that_ran_longer_is_found_at_its_head(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import torch.distributed as dist

def step(rank, x, queue=None):
    while not queue.empty():
        dist.all_reduce(x)
    dist.barrier()
""",
    )
    fork = forks_of(parted(6, "barrier", 5, "all_reduce"), source)[0]

    assert (fork.kind, fork.node.lineno) == (ForkKind.LOOP, 4)


def test_an_exception_that_is_passed_over_is_found_at_the_handler(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import torch.distributed as dist
def step(rank, x):
    for batch in range(10):
        try:
            dist.all_reduce(x)
            y = decode(x)
            dist.all_gather([y], y)
        except ValueError:
            continue
        dist.barrier()
""",
    )
    fork = forks_of(parted(5, "all_reduce", 7, "all_gather"), source)[0]

    assert (fork.kind, fork.node.lineno) == (ForkKind.CAUGHT, 8)


def test_the_call_is_shown_where_one_line_passes_what_does_not_fit(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import torch.distributed as dist
def step(rank, x):
    for batch in range(10):
        dist.all_reduce(x)
""",
    )
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=4)
    job.op([0, 1, 3], line=4, size=4, done=False)
    job.op([2], line=4, size=7, done=False)
    fork = forks_of(job.capture(), source)[0]

    assert (fork.kind, fork.node.lineno) == (ForkKind.ARGUMENT, 4)


def test_a_loop_over_a_set_is_shown_where_calls_came_in_another_order(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import torch.distributed as dist
def step(rank, x):
    for name in set(x):
        dist.all_reduce(x[name])
""",
    )
    job = SmallJob(4)
    for sizes in ((3, 5, 7), (5, 7, 3)):
        for rank in (0, 1) if sizes[0] == 3 else (2, 3):
            for size in sizes:
                job.op([rank], line=4, size=size, done=False)
    fork = forks_of(job.capture(), source)[0]

    assert (fork.kind, fork.node.lineno) == (ForkKind.ORDER, 3)


def test_a_rank_that_is_held_is_found_in_its_live_stack_and_under_its_branch(tmp_path: Path) -> None:
    source = write_source(
        tmp_path,
        """
import time, torch.distributed as dist
def step(rank, x):
    for batch in range(10):
        dist.all_reduce(x)
        if rank == 2:
            time.sleep(1000)
""",
    )
    job = SmallJob(4)
    job.op(line=4)
    job.op([0, 1, 3], line=4, done=False)
    frames = (Frame("step", "/train/train.py", 6), Frame("<module>", "/train/train.py", 99))
    forks = forks_of(job.capture(stacks=(LiveStack(2, "stacks_2", 1, frames),)), source)

    assert [(f.kind, f.node.lineno) for f in forks[:2]] == [(ForkKind.HELD, 6), (ForkKind.SKIPPED, 5)]


LOADED = """
import torch.distributed as dist
from torch.utils.data import Dataset
class Clips(Dataset):
    def __getitem__(self, i):
        return open(self.names[i]).read()
{second}
def step(rank, loader, x):
    for clip in loader:
        dist.all_reduce(x)
"""
SECOND = """
class Held(Dataset):
    def __getitem__(self, i):
        return i
"""


@for_each(("second", "line"), [("", 5), (SECOND, 12)])
def test_a_rank_that_waits_for_its_loader_is_shown_with_the_dataset_if_there_is_one(
    second: str, line: int, tmp_path: Path
) -> None:
    source = write_source(tmp_path, LOADED.format(second=second))
    at = 12 if second else 8
    job = SmallJob(4)
    job.op(line=at + 1)
    job.op([0, 1, 3], line=at + 1, done=False)
    loader = Frame("_try_get_data", "/opt/lib/python3.12/site-packages/torch/utils/data/dataloader.py", 1131)
    frames = (loader, Frame("step", "/train/train.py", at), Frame("<module>", "/train/train.py", 99))
    forks = forks_of(job.capture(stacks=(LiveStack(2, "stacks_2", 1, frames),)), source)

    assert (forks[0].kind, forks[0].node.lineno) == (ForkKind.HELD, line)


@for_each(("number", "shown"), [("0126", True), ("0015", False)])
def test_a_thread_that_communicates_beside_the_main_one_is_shown_where_calls_came_in_another_order(
    number: str, shown: bool
) -> None:
    told = [site.why or "" for site in verdict_of(number, source=True).sites]

    assert any("a thread makes this call" in why for why in told) is shown


def test_two_branches_that_explain_it_equally_are_both_shown_and_neither_is_sure(tmp_path: Path) -> None:
    twice = SKIPPED.replace("if config.verbose:", "if dist.get_rank() > 1:")
    one = forks_of(parted(8, "broadcast", 9, "barrier"), write_source(tmp_path, SKIPPED))
    two = forks_of(parted(8, "broadcast", 9, "barrier"), write_source(tmp_path, twice))

    assert {f.node.lineno for f in two[:2]} == {6, 7}
    assert two[0].confidence < one[0].confidence


def test_source_of_another_version_gives_a_note_and_no_place_in_it(tmp_path: Path) -> None:
    source = write_source(tmp_path, "\n\n\n" + SKIPPED.replace("def step", "# moved\n\n\n\n\n\ndef step"))
    verdict = forkpoint.diagnose(parted(8, "broadcast", 9, "barrier"), source=[source])

    assert all(site.condition is None for site in verdict.sites)
    assert "line 8 of train.py in the stacks does not match the file under --source" in verdict.coverage.notes


def test_a_file_that_is_not_under_source_is_named(tmp_path: Path) -> None:
    write_source(tmp_path, SKIPPED, name="other.py")
    verdict = forkpoint.diagnose(parted(8, "broadcast", 9, "barrier"), source=[str(tmp_path)])

    assert "train.py appears in the stacks but is not under --source" in verdict.coverage.notes
    assert all(site.condition is None for site in verdict.sites)


def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def step(:\n")
    verdict = forkpoint.diagnose(parted(8, "broadcast", 9, "barrier"), source=[str(tmp_path)])

    assert any("train.py: not parsed" in note for note in verdict.coverage.notes)


def test_without_source_sites_are_the_lines_where_cohorts_stand() -> None:
    verdict = forkpoint.diagnose(parted(8, "broadcast", 9, "barrier"))

    assert [(s.line, s.function, s.condition, s.why) for s in verdict.sites] == [
        (8, "step", None, None),
        (9, "step", None, None),
    ]
