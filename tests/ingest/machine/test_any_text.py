"""Anyone's text: no crash, nothing that no line says, and nothing outside the budgets."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.evidence.machine.kernel import MAX_EVENTS, group_bursts, looks_like_kernel_log, read_kernel_log
from forkpoint.evidence.machine.kernel_lines import KernelEvent
from forkpoint.evidence.machine.places import place_of_bus, read_places
from forkpoint.evidence.machine.ras import looks_like_ras, read_ras
from forkpoint.evidence.machine.ras_report import RasReport, find_behind
from forkpoint.evidence.text import clean
from ingest.machine.answers import JSON, MONITOR_JSON, TEXTS
from ingest.machine.lines import HEADERS, OTHERS, QUIET, XIDS
from looping import for_each

MEGABYTE = 1 << 20
INIT = "node-1:9:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x48 rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 1a000 commId 0xc - Init START"
KERNEL = [header + line for header in HEADERS for line in (*XIDS, *OTHERS, *QUIET)]
PIECES = [*KERNEL, INIT, *(line for text in TEXTS for line in text.splitlines())]
NOISE = ["", "\x00", '"', "(", "9" * 40, "\x1b[31m", ":", " ", "\r", "\u202e"]


def check_events(events: tuple[KernelEvent, ...], text: str) -> None:
    lines = text.split("\n")
    assert len(events) <= MAX_EVENTS
    for event in events:
        line = lines[event.line - 1]
        # Colours are taken out before a line is read: an escape may stand inside a number.
        plain = re.sub(r"\x1b\[[0-9;:?]*[@-~]", "", line)
        assert event.text == clean(event.text)
        for number in (event.xid, event.sxid, event.pid, event.previous_xid):
            assert number is None or re.search(rf"(?<!\d)0*{number}(?!\d)", plain)
        assert event.host is None or event.host in plain
        near = "\n".join(lines[max(0, event.line - 4) : event.line - 1]) if event.kind == "gpu-lost" else ""
        assert event.bus_id is None or event.bus_id[5:10] in (near + plain).lower()


def check_reports(reports: tuple[RasReport, ...], text: str) -> None:
    lines = text.count("\n") + 1
    for report in reports:
        assert 1 <= report.line <= lines
        for communicator in report.communicators:
            assert communicator.hash.lstrip("0") in text
            for one in find_behind(communicator):
                assert one.launched < one.most
                assert len(one.group_ranks) <= one.total


def random_text(chance: random.Random, size: int) -> str:
    return chance.randbytes(size).decode("latin-1")


def shuffled_lines(chance: random.Random, size: int) -> str:
    lines: list[str] = []
    while size > 0:
        line = chance.choice(PIECES)
        if chance.random() < 0.3:
            at = chance.randrange(len(line) + 1)
            line = line[:at] + chance.choice(NOISE) + line[at + 1 :]
        lines.append(line)
        size -= len(line) + 1
    return "\n".join(lines)


def mutated_json(chance: random.Random, size: int) -> str:
    pieces: list[str] = []
    while size > 0:
        text = chance.choice([JSON, JSON, MONITOR_JSON])
        at = chance.randrange(len(text) * 4)
        pieces.append(text[:at] + chance.choice(NOISE) + text[at + 1 :] if at < len(text) else text)
        size -= len(text)
    return "".join(pieces)


@for_each("make", [random_text, shuffled_lines, mutated_json])
def test_megabytes_of_random_or_mutated_text_say_nothing_that_is_not_there(make) -> None:
    chance = random.Random(20261115)
    for _ in range(2):
        text = make(chance, MEGABYTE)
        looks_like_kernel_log(text[:4096])
        looks_like_ras(text[:4096])
        events = read_kernel_log(text, "x")
        check_events(events, text)
        group_bursts(events)
        check_reports(read_ras(text, "x"), text)
        assert {place.rank for place in read_places(text.split("\n"), "x", 5)} <= {5}


def test_random_text_alone_says_nothing() -> None:
    text = random_text(random.Random(1), 4 * MEGABYTE)

    assert read_kernel_log(text, "x") == ()
    assert read_ras(text, "x") == ()
    assert read_places(text.split("\n"), "x", 5) == ()


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=80)), max_size=30).map("\n".join))
def test_any_mixture_of_lines_is_read(text) -> None:
    check_events(read_kernel_log(text, "x"), text)
    check_reports(read_ras(text, "x"), text)
    for event in read_kernel_log(text, "x"):
        assert place_of_bus(read_places(text.split("\n"), "x", None), event.host, event.bus_id) is None


@for_each(
    "line",
    [
        "NVRM: " + "nvlink " * 100_000,
        "NVRM: Xid (PCI:0000:3b:00): 45, " + "caused by previous Xid " * 50_000,
        "oom-kill:constraint=X," + "task_memcg=" * 100_000,
        "INFO: task " + "a:1" * 100_000 + " blocked for more than ",
        "[1.000001] " * 100_000 + "NVRM: ",
        "mlx5_" * 200_000,
        "a" * 1_000_000 + " NCCL INFO comm 0x1 busId ",
        "x:1:1 " * 200_000 + "[0] NCCL INFO comm 0x1 busId ",
        "EDAC " * 200_000,
        '{"nccl_version": "", "communicators": [' + '{"a":\n"' * 100_000,
    ],
)
def test_a_line_of_a_megabyte_is_soon_done_with(line) -> None:
    for text in (line, line + "\n"):
        read_kernel_log(text, "x")
        looks_like_kernel_log(text)
        looks_like_ras(text)
        check_reports(read_ras(text, "x"), text)
        assert read_places([text], "x", 1) == ()
