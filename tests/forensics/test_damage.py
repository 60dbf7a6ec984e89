"""Recorded values that were lost, cut, renamed or mixed up: the answer may get weaker, never wrong."""

import random
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import forkpoint
from cases import Case, load_cases
from forkpoint.errors import UnreadableInput
from forkpoint.model.verdict import Action, Cause
from looping import for_each

WATCHED = [case for case in load_cases() if any(case.capture.glob("*.jsonl"))]


@dataclass(frozen=True)
class Damage:
    lost: frozenset[int]
    """Places of files in the sorted folder."""
    cut: dict[int, float]
    shuffled: int
    """Lines change places in all files but their first one; 0: they do not."""


DAMAGES = st.builds(
    Damage,
    lost=st.frozensets(st.integers(0, 11), max_size=8),
    cut=st.dictionaries(st.integers(0, 11), st.floats(0.0, 0.99), max_size=4),
    shuffled=st.integers(0, 3),
)


def damaged(case: Case, damage: Damage, folder: Path) -> list[str]:
    for place, file in enumerate(sorted(case.capture.iterdir())):
        if place in damage.lost:
            continue
        head, *lines = file.read_bytes().splitlines(keepends=True)
        if damage.shuffled and file.suffix == ".jsonl":
            random.Random(damage.shuffled).shuffle(lines)
        data = b"".join([head, *lines])
        (folder / f"part_{place}").write_bytes(data[: int(len(data) * damage.cut.get(place, 1.0))])
    return [str(path) for path in folder.iterdir()]


@given(case=st.sampled_from(WATCHED), damage=DAMAGES)
def test_damaged_values_never_turn_the_verdict_wrong(tmp_path_factory, case: Case, damage: Damage) -> None:
    paths = damaged(case, damage, tmp_path_factory.mktemp("capture"))
    try:
        verdict = forkpoint.diagnose(forkpoint.read(paths)) if paths else None
    except UnreadableInput:
        return
    if verdict is not None:
        checks = {place for place, file in enumerate(sorted(case.capture.iterdir())) if "replicas" in file.name}
        vanished = {Cause.HEALTHY} if checks <= damage.lost | damage.cut.keys() else set()
        assert set(verdict.suspects) <= case.guilty, f"case {case.number}: {verdict.summary}"
        assert verdict.cause in {*case.causes, Cause.INCONCLUSIVE} | vanished, f"case {case.number}: {verdict.summary}"


@for_each("case", WATCHED, ids=[case.number for case in WATCHED])
def test_the_files_of_one_kind_alone_accuse_nobody_else_and_take_no_node_out(case: Case) -> None:
    for kind in ("forensics", "replicas"):
        files = [str(path) for path in case.capture.glob(f"{kind}_*.jsonl")]
        verdict = forkpoint.diagnose(forkpoint.read(files))
        assert set(verdict.suspects) <= case.guilty
        assert verdict.action is not Action.REPLACE_NODE
