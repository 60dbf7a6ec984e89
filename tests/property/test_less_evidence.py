"""Less or worse evidence may weaken a verdict, never turn it wrong: no innocent rank is accused, no other cause named."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint
from cases import Case, load_cases
from forkpoint.errors import UnreadableInput
from forkpoint.model.verdict import Cause
from looping import for_each
from property.sweep import WRONG, try_variant

ALL = load_cases()
TEXTS = (".txt", ".jsonl")
NAMES = ("comm_lib_trace_rank_{}", "rank_{}", "rank-{}.json", "trace_rank_node07_{}", "dump_{}.bin", "rank{}/fr.pickle")


@dataclass(frozen=True)
class Damage:
    """What happens to a capture on its way to us."""

    lost_dumps: frozenset[int]
    cut_dumps: frozenset[int]
    cut_at: float
    lost_texts: frozenset[int]
    name: str
    foreign: tuple[Case, int, int] | None
    """A case, the index of its dump, and the rank it is mistaken for."""
    backwards: bool


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    ranks = st.frozensets(st.integers(0, 15), max_size=3)
    any_or_all = st.one_of(ranks, st.just(frozenset(range(16))))
    other = st.tuples(st.sampled_from(ALL), st.integers(0, 15), st.integers(0, 15))
    return Damage(
        lost_dumps=draw(any_or_all),
        cut_dumps=draw(ranks),
        cut_at=draw(st.floats(0.02, 0.98)),
        lost_texts=draw(any_or_all),
        name=draw(st.sampled_from(NAMES)),
        foreign=draw(st.none() | other),
        backwards=draw(st.booleans()),
    )


@given(case=st.sampled_from(ALL), damage=damages())
@settings(max_examples=100)
def test_damaged_evidence_never_turns_the_verdict_wrong(tmp_path_factory, case: Case, damage: Damage) -> None:
    check_damaged(case, damage, tmp_path_factory.mktemp("capture"))


@pytest.mark.sweep
@given(case=st.sampled_from(ALL), damage=damages())
@settings(max_examples=2000)
def test_damage_of_many_kinds_never_turns_the_verdict_wrong(tmp_path_factory, case: Case, damage: Damage) -> None:
    check_damaged(case, damage, tmp_path_factory.mktemp("capture"))


def check_damaged(case: Case, damage: Damage, folder: Path) -> None:
    try:
        paths = sorted(_damaged(case, damage, folder), reverse=damage.backwards)
        verdict = forkpoint.diagnose(forkpoint.read(paths)) if paths else None
    except UnreadableInput:
        verdict = None
    finally:
        shutil.rmtree(folder)

    if verdict is not None:
        assert set(verdict.suspects) <= case.guilty, f"case {case.number}: {verdict.summary}"
        # gloo's dumps do not say how many ranks there were: a rank that leaves nothing at all cannot be missed.
        vanished = {Cause.HEALTHY} if case.guilty <= damage.lost_dumps & damage.lost_texts else set()
        assert verdict.cause in {*case.causes, Cause.INCONCLUSIVE} | vanished, f"case {case.number}: {verdict.summary}"


def _damaged(case: Case, damage: Damage, folder: Path) -> list[str]:
    paths: list[str] = []
    for file in sorted(case.capture.iterdir()):
        rank = int("".join(c for c in file.stem.rsplit("_", 1)[-1] if c.isdigit()))
        if file.suffix in TEXTS:
            if rank not in damage.lost_texts:
                paths.append(str(file))
        elif rank not in damage.lost_dumps:
            data = file.read_bytes()
            keep = int(len(data) * damage.cut_at) if rank in damage.cut_dumps else len(data)
            paths.append(_write(folder / damage.name.format(rank), data[:keep]))
    if damage.foreign is not None:
        other, index, rank = damage.foreign
        dumps = sorted(f for f in other.capture.iterdir() if f.suffix not in TEXTS)
        if dumps and other.number != case.number:
            data = dumps[index % len(dumps)].read_bytes()
            paths.append(_write(folder / "other" / f"nccl_trace_rank_{rank % case.world}", data))
    return paths


def _write(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


@for_each("case", ALL, ids=lambda case: case.number, one_in=10)
def test_a_damaged_variant_of_a_case_names_no_other_cause_and_no_innocent_rank(case: Case) -> None:
    """`python -m property.sweep` tries thousands."""
    outcome = try_variant(case, seed=3)

    assert outcome.what not in WRONG, outcome


def test_a_ring_in_dumps_of_the_active_calls_alone_may_come_from_a_skipped_message() -> None:
    """The pipeline's stage may send after the reduction, or has left the message out: what it did before is not in its dump."""
    (case,) = (c for c in ALL if c.number == "0021")

    assert try_variant(case, seed=977_000_008).what == "inconclusive"
