"""Every patch for every case applies, and leaves files that parse."""

import ast
from pathlib import Path

from cases import CASES, load_cases
from looping import for_each
from remedies.offered import offered, patched

ALL = [case.number for case in load_cases()]


@for_each("case", ALL)
def test_every_patch_applies_and_the_result_parses(case: str, tmp_path: Path) -> None:
    for place, patch in enumerate(offered(case).patches):
        folder = patched(CASES / case / "source", patch, tmp_path / str(place))
        for file in folder.rglob("*.py"):
            ast.parse(file.read_bytes())


@for_each("case", ALL)
def test_there_are_at_most_three_probes_and_each_is_a_patch(case: str) -> None:
    probes = offered(case).probes

    assert len(probes) <= 3
    assert all(probe.patch and probe.where for probe in probes)
