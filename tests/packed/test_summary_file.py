"""Summary files: the verdict of a merged summary is that of the files, and joining does not depend on order."""

import json
import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint
from accept import render_expected
from cases import CASES, Case, load_cases, verdict_of
from forkpoint.errors import InputError, UnreadableInput
from forkpoint.evidence.files import SUMMARY, find_files
from forkpoint.evidence.summary_file import merge, summarise
from forkpoint.model.layout import U32
from forkpoint.pipeline import diagnose
from looping import for_each

ALL = load_cases()
BY_NUMBER = for_each("case", ALL, ids=lambda case: case.number, one_in=10)
MIXED = [c for c in ALL if c.number in {"0001", "0005", "0042", "0070"}]


@cache
def parts_of(case: Case, count: int = 2) -> tuple[bytes, ...]:
    """As if the files lay on so many nodes; a node without anything that tells has no part."""
    files = find_files([str(case.capture)])
    parts: list[bytes] = []
    for node in range(count):
        try:
            parts.append(summarise(files[node::count]))
        except InputError:
            continue
    return tuple(parts)


@BY_NUMBER
def test_a_merged_summary_gives_the_verdict_of_the_files(case: Case, tmp_path: Path) -> None:
    merged = tmp_path / "merged.fps"
    merged.write_bytes(merge(parts_of(case)))

    verdict = forkpoint.diagnose(forkpoint.read([str(merged)]))

    golden = json.loads((CASES / case.number / "expected.json").read_text())
    assert json.loads(render_expected(verdict)) == golden


@settings(max_examples=15)
@given(st.sampled_from(MIXED), st.randoms(use_true_random=False))
def test_joining_is_associative_commutative_and_counts_nothing_twice(case: Case, chance: random.Random) -> None:
    parts = parts_of(case, 4)
    whole = merge(parts)

    heap = [*parts, chance.choice(parts)]
    while len(heap) > 1:
        chance.shuffle(heap)
        taken, heap = heap[:2], heap[2:]
        heap.append(merge(taken))

    assert heap[0] == whole
    assert merge([whole]) == whole


def test_a_summary_can_lie_beside_dumps_and_logs(tmp_path: Path) -> None:
    case = ALL[0]
    files = find_files([str(case.capture)])
    (tmp_path / "half.fps").write_bytes(summarise(files[::2]))

    mixed = diagnose(forkpoint.read([str(tmp_path), *files[1::2]]))

    assert mixed == verdict_of(case.number)


def test_files_are_named_by_where_they_lie(tmp_path: Path) -> None:
    summary = tmp_path / "node.fps"
    summary.write_bytes(summarise([str(ALL[0].capture)], origin="node17"))

    capture = forkpoint.read([str(summary)])

    assert {trace.file.split(":")[0] for trace in capture.traces} == {"node17"}
    assert {log.split(":")[0] for log, _ in capture.logs} <= {"node17"}


def test_nothing_to_summarise_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.bin").write_bytes(b"")

    with pytest.raises(UnreadableInput, match="nothing to diagnose"):
        summarise([str(tmp_path)])


@pytest.fixture(scope="module")
def small() -> bytes:
    return summarise([str(ALL[0].capture)])


def refusal(data: bytes, folder: Path) -> str | None:
    """How it is refused; None where it is not."""
    path = folder / "x.fps"
    path.write_bytes(data)
    try:
        forkpoint.read([str(path)])
    except InputError as error:
        return str(error)
    return None


def test_wherever_a_summary_is_cut_it_is_refused(small: bytes, tmp_path: Path) -> None:
    for end in range(len(SUMMARY) + 1, len(small), 397):
        assert refusal(small[:end], tmp_path)


def test_whichever_bit_is_flipped_a_summary_is_refused(small: bytes, tmp_path: Path) -> None:
    chance = random.Random(3)
    for _ in range(40):
        damaged = bytearray(small)
        damaged[chance.randrange(len(SUMMARY), len(small))] ^= 1 << chance.randrange(8)
        assert "\n" not in (refusal(bytes(damaged), tmp_path) or "\n")


def test_another_version_is_told(small: bytes, tmp_path: Path) -> None:
    newer = small[: len(SUMMARY)] + U32.pack(2) + small[len(SUMMARY) + 4 :]

    assert "version 2" in str(refusal(newer, tmp_path))


def test_a_piece_that_claims_gigabytes_is_refused_before_it_is_unpacked(small: bytes, tmp_path: Path) -> None:
    at = len(SUMMARY) + 4
    bomb = small[: at + 1] + U32.pack(2**31) + small[at + 5 :]

    assert "leave it out" in str(refusal(bomb, tmp_path))
