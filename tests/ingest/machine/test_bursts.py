"""Which of many kernel lines can be the cause."""

import random

from forkpoint.evidence.machine.kernel import Burst, group_bursts, read_kernel_log


def bursts(*lines: str) -> tuple[Burst, ...]:
    return group_bursts(read_kernel_log("".join(f"{line}\n" for line in lines), "kern.log"))


def xid(code: int, second: int, bus: str = "3b", host: str = "node-7") -> str:
    return f"Feb 23 16:24:{second:02} {host} kernel: NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=1, name=python, Ch 8"


def test_many_lines_of_one_gpu_are_one_burst_with_counts() -> None:
    (burst,) = bursts(*(xid(31, n) for n in range(5)), xid(43, 6), xid(45, 7), xid(45, 8), xid(154, 9))

    assert (burst.host, burst.bus_id) == ("node-7", "0000:3b:00.0")
    assert burst.cause is not None
    assert (burst.cause.xid, burst.cause.line, burst.last_line) == (31, 1, 9)
    assert [(c.code, c.times, c.follow_on) for c in burst.counts] == [
        (31, 5, False),
        (43, 1, True),
        (45, 2, True),
        (154, 1, True),
    ]


def test_what_only_follows_is_not_the_cause_even_when_printed_first() -> None:
    (burst,) = bursts(xid(154, 1), xid(45, 2), xid(79, 3))

    assert burst.first.xid == 79


def test_a_lone_removal_of_channels_has_no_cause_in_the_log() -> None:
    (burst,) = bursts(xid(45, 1), xid(45, 2))

    assert burst.first.xid == 45
    assert burst.follow_on
    assert burst.cause is None


def test_a_contained_error_is_the_cause_unless_something_came_before() -> None:
    (alone,) = bursts(xid(94, 1), xid(45, 2))
    (after,) = bursts(xid(48, 1), xid(94, 2), xid(45, 3))

    assert [(c.code, c.follow_on) for c in alone.counts] == [(94, False), (45, True)]
    assert [(c.code, c.follow_on) for c in after.counts] == [(48, False), (94, True), (45, True)]
    assert after.first.xid == 48


def test_gpus_and_hosts_are_kept_apart() -> None:
    found = bursts(xid(79, 1), xid(45, 1, bus="86"), xid(31, 2, host="node-8"))

    assert [(b.host, b.bus_id, b.first.xid, b.follow_on) for b in found] == [
        ("node-7", "0000:3b:00.0", 79, False),
        ("node-7", "0000:86:00.0", 45, True),
        ("node-8", "0000:3b:00.0", 31, False),
    ]


def test_an_old_error_does_not_explain_a_new_one() -> None:
    old, new = bursts(
        "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:3b:00): 31, Ch 8",
        "[Mon Feb 24 16:24:18 2025] NVRM: Xid (PCI:0000:3b:00): 45, Ch 8",
    )

    assert old.cause is not None
    assert new.cause is None


def test_a_boot_begins_a_new_burst() -> None:
    line = "] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

    assert len(bursts(f"[9000.000001{line}", f"[9100.000001{line}", f"[12.000001{line}")) == 2


def test_files_without_a_host_are_different_hosts() -> None:
    line = "[1.000001] NVRM: Xid (PCI:0000:3b:00): 79, x\n"

    assert len(group_bursts([*read_kernel_log(line, "a/dmesg"), *read_kernel_log(line, "b/dmesg")])) == 2


def test_a_corrected_pcie_error_is_a_hint_beside_a_lost_gpu() -> None:
    corrected = "[1.000001] pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0"
    fatal = "[2.000001] pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"
    lost = "[3.000001] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

    assert [b.first.xid for b in bursts(corrected, lost)] == [79]
    assert [b.first.line for b in bursts(corrected, fatal, lost)] == [2]
    assert [b.first.line for b in bursts(corrected)] == [1]


def test_the_order_of_the_input_does_not_matter() -> None:
    lines = [
        xid(code, n % 60, bus) for n, (code, bus) in enumerate([(31, "3b"), (45, "86"), (43, "3b"), (79, "86")] * 9)
    ]
    events = list(read_kernel_log("".join(f"{line}\n" for line in lines), "x"))
    expected = group_bursts(events)
    random.Random(7).shuffle(events)

    assert group_bursts(events) == expected
