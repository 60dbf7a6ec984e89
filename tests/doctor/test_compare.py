"""Which node is not like the others."""

import json
from itertools import permutations
from pathlib import Path

import pytest

from forkpoint.doctor import examine
from forkpoint.doctor.broken import examine_injected
from forkpoint.doctor.checks import CHECKS
from forkpoint.doctor.report import (
    CheckResult,
    CheckStatus,
    DoctorCheck,
    DoctorReport,
    Document,
    NodeChange,
    PastResult,
    changes,
    compare,
    read_document,
    render_comparison_json,
    render_json,
)
from forkpoint.doctor.system import empty_machine
from forkpoint.doctor.text import render_changes, render_comparison
from forkpoint.errors import UnreadableInput
from looping import for_each


def node(host: str, driver: str, status: str = "ok", **more: str) -> Document:
    return Document(f"{host}.json", host, 0.0, {"versions": PastResult(status, {"driver": driver, **more})})


def test_the_odd_one_out_is_named_whatever_the_order() -> None:
    nodes = [node("a", "550"), node("b", "550"), node("c", "535")]

    for order in permutations(nodes):
        (difference,) = compare(order).differences
        assert (difference.check, difference.what, difference.usual) == ("versions", "driver", "550")
        assert difference.values == (("535", ("c",)), ("550", ("a", "b")))


def test_nodes_that_agree_do_not_differ() -> None:
    comparison = compare([node("a", "550"), node("b", "550")])

    assert comparison.differences == ()
    assert render_comparison(comparison) == "2 nodes compared: no difference"


@pytest.mark.parametrize("drivers", [("535", "550"), ("535", "535", "550", "550")])
def test_of_a_tie_nobody_is_odd(drivers: tuple[str, ...]) -> None:
    comparison = compare([node(f"n{i}", driver) for i, driver in enumerate(drivers)])

    assert comparison.differences[0].usual is None
    assert "no majority" in render_comparison(comparison)


def test_the_most_common_of_three_values_is_usual_without_being_half() -> None:
    (difference,) = compare([node(f"n{i}", d) for i, d in enumerate(("1", "2", "2", "3", "4"))]).differences

    assert difference.usual == "2"


def test_a_status_and_a_detail_that_one_node_lacks_are_differences() -> None:
    comparison = compare([node("a", "1", NCCL="2"), node("b", "1", NCCL="2"), node("c", "1", status="skipped")])

    assert [(each.what, each.values[0]) for each in comparison.differences] == [
        ("status", ("skipped", ("c",))),
        ("NCCL", ("not reported", ("c",))),
    ]


def test_a_node_that_was_not_asked_about_a_check_stands_out() -> None:
    comparison = compare([node("a", "1"), node("b", "1"), Document("c.json", "c", 0.0, {})])

    assert [each.values[0] for each in comparison.differences] == [("not reported", ("c",)), ("not reported", ("c",))]


def test_counters_since_boot_are_not_compared_between_nodes() -> None:
    nodes = [node(host, "1", **{"count mlx5_0 symbol_error": count}) for host, count in (("a", "0"), ("b", "7"))]

    assert compare(nodes).differences == ()


def test_two_reports_of_one_host_are_told_apart_by_their_files() -> None:
    nodes = [node("a", "1"), Document("later.json", "a", 9.0, {"versions": PastResult("ok", {"driver": "2"})})]

    assert compare(nodes).nodes == ("a (a.json)", "a (later.json)")


def test_the_comparison_as_json() -> None:
    document = json.loads(render_comparison_json(compare([node("a", "1"), node("b", "1"), node("c", "2")])))

    assert document == {
        "schema": "forkpoint.doctor-compare/1",
        "nodes": ["a", "b", "c"],
        "differences": [
            {
                "check": "versions",
                "what": "driver",
                "usual": "1",
                "values": [{"value": "2", "nodes": ["c"]}, {"value": "1", "nodes": ["a", "b"]}],
            }
        ],
    }


def test_what_a_node_said_cannot_act_on_the_terminal() -> None:
    text = render_comparison(compare([node("a\x1b[2J", "1"), node("b", "2\x07"), node("c", "3")]))

    assert "\x1b" not in text
    assert "\x07" not in text


def report_of(**details: str) -> DoctorReport:
    result = CheckResult(CheckStatus.OK, "seen", details=tuple(details.items()))
    return examine(
        empty_machine(), [DoctorCheck("links", "links", "why.", lambda _system: result, lambda system: system)]
    )


def test_since_an_earlier_look_counters_count() -> None:
    earlier = Document("e.json", "a", 0.0, {"links": PastResult("ok", {"count errors": "3", "rate": "400"})})

    found = changes(earlier, report_of(**{"count errors": "9", "rate": "400"}))

    assert found == (NodeChange("links", "count errors", "3", "9"),)
    assert render_changes(found, "e.json") == "since e.json:\n  links: count errors 3 -> 9"
    assert render_changes((), "e.json") == "nothing has changed since e.json"


def test_a_report_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(render_json(examine(empty_machine(), CHECKS)))

    document = read_document(str(path))

    assert document.host == "node-0"
    assert list(document.results) == [check.name for check in CHECKS]
    assert document.results["clock"].status == "skipped"


@for_each(
    "text",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"schema": "forkpoint.verdict/1"}',
        '{"schema": "forkpoint.doctor/1", "injected": null, "host": "a", "time": 0, "results": [3]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_report_is_refused_with_the_next_step(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    with pytest.raises(UnreadableInput, match=r"x\.json: is not a doctor's report .*; write it with"):
        read_document(str(path))


def test_a_report_of_a_machine_broken_on_purpose_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(render_json(examine_injected(empty_machine(), CHECKS[0])))

    with pytest.raises(UnreadableInput, match="broken on purpose"):
        read_document(str(path))


def test_a_report_too_long_to_be_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(9 << 20)

    with pytest.raises(UnreadableInput, match="too long"):
        read_document(str(path))
