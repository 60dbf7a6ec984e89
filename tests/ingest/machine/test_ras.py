"""What NCCL's RAS network said."""

import pytest

from forkpoint.evidence.machine.ras import looks_like_ras, read_ras
from forkpoint.evidence.machine.ras_report import Behind, RasReport, find_behind
from ingest.machine.answers import (
    DEAD,
    FEW_BEHIND,
    JSON,
    MONITOR,
    MONITOR_JSON,
    ONE_AHEAD,
    STATUSES,
    TABLE,
    TEXTS,
    UNRESPONSIVE,
)
from looping import for_each


def read_one(text: str) -> RasReport:
    (report,) = read_ras(text, "ras.txt")
    return report


def behind(report: RasReport) -> list[Behind]:
    return [one for communicator in report.communicators for one in find_behind(communicator)]


def facts(report: RasReport) -> list[tuple[str | None, int, int, int, tuple[int, ...]]]:
    return [(one.operation, one.launched, one.most, one.total, one.group_ranks) for one in behind(report)]


@for_each("text", [*TEXTS[:2], UNRESPONSIVE, MONITOR, STATUSES, JSON, MONITOR_JSON, TABLE])
def test_an_answer_is_known_by_its_beginning(text) -> None:
    assert looks_like_ras(text)


@for_each(
    "text",
    [
        "",
        "NCCL version 2.27.5+cuda12.9\nstep 1\n",
        "node-1:9:9 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>\n",
        '{"communicators": []}',
        "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:3b:00): 79, x\n",
        "Errors\n======\n",
    ],
)
def test_other_text_is_not_taken_for_an_answer(text) -> None:
    assert not looks_like_ras(text)
    assert read_ras(text, "x") == ()


def test_the_ranks_behind_are_named_as_the_answer_names_them() -> None:
    report = read_one(FEW_BEHIND)

    assert report.version == "2.26.2"
    assert facts(report) == [(None, 6649, 6650, 6, (0, 2, 3, 4, 5, 7))]
    (first, *_) = report.communicators[0].counts[1].ranks
    assert first.process is not None
    assert (first.process.pid, first.process.host, first.process.gpus) == (483072, "172.16.64.210", (0,))


def test_where_the_answer_names_those_ahead_the_ranks_behind_are_the_others() -> None:
    report = read_one(ONE_AHEAD)
    others = tuple(rank for rank in range(32) if rank != 9)

    assert facts(report) == [("Broadcast", 0, 3, 1, (9,)), ("AllReduce", 11, 12, 31, others)]
    assert report.communicators[0].counts[1].ranks[0].process.nvml_gpus == (5,)


def test_without_the_size_of_the_communicator_the_others_are_not_guessed() -> None:
    report = read_one(ONE_AHEAD.replace(TABLE, ""))

    assert facts(report) == [("Broadcast", 0, 3, 1, (9,)), ("AllReduce", 11, 12, 31, ())]


def test_ranks_of_different_status_are_remarks_not_counts() -> None:
    (communicator,) = read_one(STATUSES).communicators

    assert communicator.counts == ()
    assert [(r.text, r.total, [x.group_rank for x in r.ranks]) for r in communicator.remarks] == [
        ("status UNKNOWN", 26, []),
        ("status RUNNING", 4, [0, 8, 16, 24]),
        ("status FINALIZE", 2, [4, 20]),
    ]


def test_a_process_that_does_not_answer_is_unreachable_not_dead() -> None:
    report = read_one(UNRESPONSIVE)

    assert [(p.pid, p.host, p.gpus) for p in report.unreachable] == [(3487984, "172.16.64.213", (5,))]
    assert report.dead == ()
    assert report.timeouts == 2
    assert [rank.group_rank for rank in report.communicators[0].missing] == [21]
    assert report.communicators[0].size == 32


def test_a_dead_process_is_named_with_its_rank_in_the_communicator() -> None:
    report = read_one(DEAD)

    assert [(p.pid, p.host) for p in report.dead] == [(3487984, "172.16.64.213")]
    (missing,) = report.communicators[0].missing
    assert (missing.group_rank, missing.process) == (21, report.dead[0])


@pytest.mark.parametrize("text", [MONITOR, MONITOR_JSON])
def test_an_event_of_the_monitor_names_the_process(text) -> None:
    (event,) = read_one(text).events

    assert (event.name, event.when) == ("PEER_DEAD", "2025-12-19 13:07:07")
    assert event.process is not None
    assert (event.process.pid, event.process.host, event.process.gpus) == (1524345, "172.16.64.245", (1,))


def test_two_answers_in_one_file_are_two_reports() -> None:
    assert [facts(r)[0][1] for r in read_ras(FEW_BEHIND + FEW_BEHIND, "x")] == [6649, 6649]
    assert [r.line for r in read_ras(JSON + JSON, "x")] == [1, 1 + JSON.count("\n")]


@for_each("text", TEXTS)
def test_a_cut_text_says_the_same_or_less(text) -> None:
    whole = read_one(text)
    for end in range(len(text)):
        for report in read_ras(text[:end], "x"):
            assert set(report.dead) <= set(whole.dead)
            assert set(report.unreachable) <= set(whole.unreachable)
            assert set(report.events) <= set(whole.events)
            known = {(b.operation, b.launched): set(b.group_ranks) for b in behind(whole)}
            for one in behind(report):
                assert set(one.group_ranks) <= known[one.operation, one.launched]


class TestJson:
    def test_every_rank_is_counted(self) -> None:
        report = read_one(JSON)

        assert (report.version, report.when, report.timeouts) == ("2.29.1", "2025-12-19 13:06:53", 2)
        assert facts(report) == [("AllReduce", 11, 12, 1, (1,))]
        assert [(c.hash, c.size, c.missing_total) for c in report.communicators] == [
            ("ae94423cfbb2ef4a", 4, 1),
            ("00000000000000be", 3, 1),
        ]

    def test_a_process_is_dead_only_where_it_is_considered_dead(self) -> None:
        report = read_one(JSON)

        assert [p.pid for p in report.dead] == [1524346]
        assert [p.pid for p in report.unreachable] == [1524347]

    @pytest.mark.parametrize(
        "broken", ['},\n          "collective', '],\n      "missing_ranks', '},\n        {\n          "rank": 1,']
    )
    def test_a_forgotten_comma_is_mended(self, broken) -> None:
        assert broken in JSON

        assert read_ras(JSON.replace(broken, broken.replace(",", "", 1)), "ras.txt") == read_ras(JSON, "ras.txt")

    def test_a_cut_answer_keeps_the_communicators_that_are_whole(self) -> None:
        whole = read_one(JSON)
        for end in range(len(JSON) - 1):
            for report in read_ras(JSON[:end], "ras.txt"):
                assert report.cut or report == whole
                assert set(report.communicators) <= set(whole.communicators)
        assert len(read_one(JSON[: JSON.index('"0xbe"')]).communicators) == 1

    @pytest.mark.parametrize(
        "text",
        [
            '{"nccl_version": "2", "communicators": {}}',
            '{"nccl_version": "2", "communicators": [[], 3, null, {"hash": 3}, {"hash": "zz"}]}',
            '{"nccl_version": 1, "communicators": [{"hash": "0x1", "size": -1, "ranks": [{"rank": "1"}, {"rank": true}]}]}',
            '{"nccl_version": "2", "communicators": ' + "[" * 100_000,
            '{"nccl_version": "2", "communicators": [{"hash": "0x1", "size": ' + "9" * 5000 + "}]}",
            '{"event": "PEER_DEAD", "peer": []}',
        ],
    )
    def test_another_shape_invents_no_rank(self, text) -> None:
        for report in read_ras(text, "x"):
            assert (report.dead, report.unreachable) == ((), ())
            assert all(not c.counts and not c.missing and c.size is None for c in report.communicators)
