"""Kernel messages, as dmesg and the journal print them."""

from forkpoint.evidence.machine.kernel import MAX_EVENTS, looks_like_kernel_log, read_kernel_log
from forkpoint.evidence.machine.kernel_lines import KernelEvent
from forkpoint.evidence.machine.places import normal_bus
from ingest.machine.lines import HEADERS, OTHERS, QUIET, XIDS
from looping import for_each

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name=python, GPU has fallen off the bus."


def read_one(line: str) -> KernelEvent:
    (event,) = read_kernel_log(f"{line}\n", "dmesg.txt")
    return event


@for_each("line", XIDS)
def test_an_xid_is_read_in_every_printed_form(line) -> None:
    event = read_one(line)

    assert (event.xid, event.bus_id, event.pid, event.process, event.device) == XIDS[line]
    assert event.kind == "xid"


@for_each("line", OTHERS)
def test_other_trouble_is_read_with_what_the_line_names(line) -> None:
    event = read_one(line)

    assert (event.kind, event.bus_id, event.pid, event.process, event.device) == OTHERS[line]
    assert event.xid is None
    assert event.sxid == (12028 if event.kind == "sxid" else None)


@for_each("line", QUIET)
def test_a_line_without_trouble_or_about_it_is_no_event(line) -> None:
    assert read_kernel_log(f"{line}\n[12345.678901] {line}\n", "x") == ()


@for_each("header", HEADERS)
@for_each("line", [LOST, next(iter(OTHERS))])
def test_time_and_host_come_from_what_stands_in_front(header, line) -> None:
    event = read_one(header + line)

    assert (event.host, event.when) == HEADERS[header]
    assert event.text == line
    assert event.bus_id in {"0000:3b:00.0", "0000:18:00.0"}


def test_the_trigger_that_the_driver_names_is_kept() -> None:
    assert (
        read_one(
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149"
        ).previous_xid
        == 149
    )
    assert read_one(LOST).previous_xid is None


def test_a_lost_gpu_told_over_three_lines_has_the_address_of_the_first() -> None:
    text = (
        "[7.000001] NVRM: The NVIDIA GPU 0000:18:00.0\n"
        "               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    (event,) = read_kernel_log(text, "dmesg.txt")

    assert (event.kind, event.bus_id, event.xid, event.explained_by) == ("gpu-lost", "0000:18:00.0", None, 79)
    assert event.line == 3


def test_fabric_managers_own_log_names_the_switch() -> None:
    event = read_one(
        "[Jan 01 2026 10:00:00] [ERROR] [tid 1234] detected NVSwitch non-fatal error 12028 on fid 0 "
        "on NVSwitch pci bus id 00000000:85:00.0 physical id 8 port 61"
    )

    assert (event.sxid, event.bus_id, event.when) == (12028, "0000:85:00.0", "Jan 01 2026 10:00:00")


def test_a_process_killed_for_its_memory_is_one_event_with_its_cgroup() -> None:
    text = (
        "Feb 23 16:24:18 node-7 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,"
        "oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c2,task=pt_main_thread,pid=77,uid=0\n"
        "Feb 23 16:24:18 node-7 kernel: Memory cgroup out of memory: Killed process 77 (pt_main_thread) total-vm:1kB\n"
        "Feb 23 16:30:00 node-7 kernel: Memory cgroup out of memory: Killed process 77 (pt_main_thread) total-vm:1kB\n"
    )
    events = read_kernel_log(text, "kern.log")

    assert [(e.line, e.pid, e.process, e.device) for e in events] == [
        (1, 77, "pt_main_thread", "/kubepods/pod1/c2"),
        (3, 77, "pt_main_thread", None),
    ]


@for_each("line", [*XIDS, *OTHERS])
def test_a_line_cut_anywhere_says_the_same_or_less(line) -> None:
    whole = read_one(line)
    for end in range(len(line)):
        for event in read_kernel_log(line[:end], "x"):
            assert event.bus_id in {whole.bus_id, None}
            assert event.xid == whole.xid
            assert event.sxid == whole.sxid
            assert event.pid in {whole.pid, None}
            assert event.process in {whole.process, None}
            assert event.device in {whole.device, None, "pcieport"}
            assert event.previous_xid in {whole.previous_xid, None}


def test_lines_are_numbered_as_in_the_file() -> None:
    text = "\n".join(["boot", *XIDS, "more", *OTHERS, ""])
    lines = text.split("\n")

    events = read_kernel_log(text, "x")

    assert len(events) == len(XIDS) + len(OTHERS)
    assert all(
        lines[event.line - 1].endswith(event.text[:40]) or event.text[:40] in lines[event.line - 1] for event in events
    )


def test_of_too_many_events_the_last_are_kept() -> None:
    text = f"{LOST}\n" * (MAX_EVENTS + 10)

    events = read_kernel_log(text, "x")

    assert len(events) == MAX_EVENTS
    assert events[-1].line == MAX_EVENTS + 10


@for_each(
    "text",
    [
        "[    0.000000] Linux version 6.8.0-45-generic\n[    0.000000] Command line: ro quiet\n",
        "[Sun Feb 23 16:24:18 2025] usb 1-1: new device\n[Sun Feb 23 16:24:18 2025] NVRM: loading\n",
        "-- Logs begin at Sun 2025-02-23 16:24:18 UTC. --\nFeb 23 16:24:18 node-7 kernel: Linux version 6.8\n",
        "Feb 23 16:24:18 node-7 systemd[1]: Started a.\nFeb 23 16:24:18 node-7 kernel: usb 1-1: x\n",
        f"{LOST}\n",
        "".join(f"{line}\n" for line in OTHERS),
    ],
)
def test_a_kernel_log_is_known_by_its_beginning(text) -> None:
    assert looks_like_kernel_log(text)


@for_each(
    "text",
    [
        "",
        "step 1\nstep 2\n" + LOST,
        "[rank0]:[E1115 01:24:50.900000000 ProcessGroupNCCL.cpp:2303] Watchdog caught collective operation timeout\n",
        "[Sun Feb 23 16:24:18 2025] [core:notice] [pid 1] AH00094: Command line: apache2\n",
        "2025-02-23T16:24:18 INFO step 1\n2025-02-23T16:24:19 INFO step 2\n",
        "2025-02-23 16:24:18,123 train INFO: step 1\n",
        "Feb 23 16:24:18 node-7 train.sh[9]: step 1\nFeb 23 16:24:18 node-7 train.sh[9]: step 2\n",
        "node-52:1759:1759 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>\n",
        "Job summary\n===========\n",
    ],
)
def test_another_file_is_not_taken_for_a_kernel_log(text) -> None:
    assert not looks_like_kernel_log(text)


@for_each(
    ("printed", "normal"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("3b000", "0000:3b:00.0"),
        ("60", "0000:00:06.0"),
        ("100000", "0001:00:00.0"),
        ("1801000", "0018:01:00.0"),
        ("0000:ab:00.1", "0000:ab:00.1"),
        ("", None),
        ("3b:00", None),
        ("0000:3b:ff.0", None),
        ("fff", None),
        ("9" * 40, None),
    ],
)
def test_an_address_has_one_form_whoever_printed_it(printed, normal) -> None:
    assert normal_bus(printed) == normal
