"""The knowledge base is complete, sourced, and says only what its readers can check."""

import re
from pathlib import Path
from re import _parser  # the only way to see a pattern's repetitions
from typing import Any

import pytest

from forkpoint.judge.detectors import DETECTORS
from forkpoint.knowledge import base
from forkpoint.knowledge.base import EntryKind, entries, find, marks
from forkpoint.model.verdict import Cause
from looping import for_each

ALL = [entry for kind in EntryKind for entry in entries(kind)]
XIDS = range(1, 177)
FOLLOW_ON = {"45", "154", "174"}
ORIGINS = ("application", "driver or firmware", "hardware", "either", "follow-on", "none", "unknown")

VARIABLES = (Path(__file__).parent / "variables.txt").read_text().split()
DO_NOTHING = [
    "NCCL_TIMEOUT",
    "TORCH_NCCL_TIMEOUT",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT",
    "P2P_LEVEL",
    "NCCL_NET_DISABLE",
    "NCCL_IB_GDR_LEVEL",
    "NCCL_TREE_THRESHOLD",
    "NCCL_LL_THRESHOLD",
    "NCCL_IB_CUDA_SUPPORT",
    "TORCH_NCCL_FLIGHT_RECORDER_ENABLED",
]


def test_every_entry_says_something() -> None:
    empty = [e.query for e in ALL if not e.title or e.title.endswith(".") or not e.means.endswith((".", "`"))]
    blank = [e.query for e in ALL for text in (*e.do, *dict(e.facts).values()) if not text.strip()]

    assert (empty, blank) == ([], [])


def test_every_entry_says_where_it_is_known_from() -> None:
    assert [e.query for e in ALL if not e.sources] == []
    # A key of the file's `[sources]` that is not there would come through as it stands.
    assert [source for e in ALL for source in e.sources if not re.search(r"[/.]|\s", source)] == []


def test_what_an_entry_points_to_exists() -> None:
    assert [(e.query, other) for e in ALL for other in e.see if not find(other) or other == e.query] == []


def test_an_entry_is_found_under_its_own_name_and_its_other_spellings() -> None:
    names = [(entry, name) for entry in ALL for name in (entry.query, *entry.aliases)]

    assert [name for entry, name in names if find(name)[:1] != (entry,)] == []


def test_no_two_entries_have_one_name() -> None:
    queries = [entry.query.casefold().replace("-", "_") for entry in ALL]

    assert sorted(queries) == sorted(set(queries))


def test_every_xid_is_there() -> None:
    assert [int(entry.code) for entry in entries(EntryKind.XID)] == list(XIDS)


def test_every_xid_says_who_is_likelier_at_fault_and_what_to_do() -> None:
    xids = entries(EntryKind.XID)

    assert [e.code for e in xids if not dict(e.facts)["likelier origin"].startswith(ORIGINS)] == []
    assert [e.code for e in xids if not dict(e.facts)["driver's name"].isupper()] == []
    assert [e.code for e in xids if not e.do] == []


def test_follow_on_xids_are_never_called_the_cause() -> None:
    follow_on = {e.code for e in entries(EntryKind.XID) if dict(e.facts)["likelier origin"].startswith("follow-on")}

    assert follow_on == FOLLOW_ON
    assert all("Never the cause" in find(f"xid{code}")[0].not_means for code in ("45", "154"))


@for_each("name", VARIABLES)
def test_every_variable_is_there_by_name(name: str) -> None:
    entry = find(name)[0]

    assert entry.kind is EntryKind.VARIABLE
    assert name in {entry.code, *entry.aliases}


@for_each("name", DO_NOTHING)
def test_variables_that_do_nothing_say_so_and_what_to_use(name: str) -> None:
    entry = find(name)[0]

    assert dict(entry.facts)["read by"].startswith("nothing")
    assert entry.title.startswith(("does not exist", "gone"))
    assert entry.do


def test_every_cause_has_an_entry() -> None:
    assert {entry.code for entry in entries(EntryKind.CAUSE)} == {str(cause) for cause in Cause}


def test_every_detector_has_an_entry() -> None:
    names = [find.__module__.rpartition(".")[2].replace("_", "-") for find in DETECTORS]

    assert [name for name in names if not find(name) or find(name)[0].kind is not EntryKind.CAUSE] == []


def test_every_result_of_nccl_is_there() -> None:
    numbers = [find(f"nccl{number}")[0].code for number in range(10)]

    assert all(code.startswith("nccl") for code in numbers)
    assert len(set(numbers)) == 10


def test_every_log_line_can_be_recognised() -> None:
    assert [e.code for e in entries(EntryKind.LINE)] == [mark.entry.code for mark in marks(EntryKind.LINE)]


def repetitions(node: Any) -> list[object]:
    """Upper bounds of all repetitions in a parsed pattern."""
    if isinstance(node, tuple) and node and node[0] in {_parser.MAX_REPEAT, _parser.MIN_REPEAT}:
        return [node[1][1], *repetitions(node[1][2])]
    if isinstance(node, list | tuple | _parser.SubPattern):
        return [bound for part in node for bound in repetitions(part)]
    return []


@pytest.mark.parametrize("kind", [EntryKind.LINE, EntryKind.NCCL])
def test_no_pattern_repeats_without_a_bound(kind: EntryKind) -> None:
    patterns = [pattern for mark in marks(kind) for pattern in mark.patterns]

    assert [p for p in patterns if _parser.MAXREPEAT in repetitions(_parser.parse(p))] == []


def test_the_bound_is_seen_inside_groups() -> None:
    assert repetitions(_parser.parse("a{1,3}(?:b(?P<c>c+)|d)")) == [3, _parser.MAXREPEAT]


def test_knowledge_knows_nothing_of_the_program() -> None:
    sources = [path.read_text() for path in Path(base.__file__).parent.glob("*.py")]
    imported = {
        name for text in sources for name in re.findall(r"^\s*(?:from|import) (forkpoint[\w.]*)", text, re.MULTILINE)
    }

    assert {name for name in imported if not name.startswith(("forkpoint.knowledge", "forkpoint.errors"))} == set()
