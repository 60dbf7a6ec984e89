"""Logs whose place alone suggests whose they are, and those of several attempts."""

from pathlib import Path

import forkpoint
from forkpoint.evidence import Choice
from forkpoint.model.capture import Capture
from forkpoint.model.log import LogKind
from looping import for_each
from texts import REFUSED, TIMED_OUT, torchrun_table

CLOSED = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/train/train.py", line 40, in step\n'
    "[rank{rank}]:     dist.all_reduce(x)\n"
    "[rank{rank}]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:2233\n"
)


def read(folder: Path, files: dict[str, str], choice: Choice | None = None) -> Capture:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return forkpoint.read([str(folder)], choice=choice) if choice else forkpoint.read([str(folder)])


def ranks(capture: Capture) -> list[int | None]:
    return sorted({rank for _, rank in capture.logs}, key=lambda rank: -1 if rank is None else rank)


def test_torchrun_s_folders_are_ranks_of_a_job_on_one_node(tmp_path: Path) -> None:
    capture = read(tmp_path, {f"run/attempt_0/{rank}/stdout.log": f"step {rank}\n" for rank in range(4)})

    assert ranks(capture) == [0, 1, 2, 3]


def test_local_ranks_of_two_nodes_are_nobody_s(tmp_path: Path) -> None:
    names = [f"{node}/run/attempt_0/{rank}/stdout.log" for node in ("a", "b") for rank in range(2)]

    assert ranks(read(tmp_path, dict.fromkeys(names, "step\n"))) == [None]


def test_a_line_that_names_another_rank_takes_the_place_of_all_such_files_back(tmp_path: Path) -> None:
    files = {f"run/attempt_0/{rank}/stderr.log": "step\n" for rank in range(3)}
    files["run/attempt_0/3/stderr.log"] = CLOSED.format(rank=11)

    capture = read(tmp_path, files)

    assert ranks(capture) == [None, 11]
    assert {e.rank for e in capture.events} == {11}


def test_the_number_of_a_host_is_not_a_rank_where_programs_introduce_themselves(tmp_path: Path) -> None:
    hosts = ("gpu-a01", "gpu-a02", "gpu-b07", "gpu-b09")

    capture = read(tmp_path, {f"{host}.log": f"rank {rank}/4: rendezvous\n" for rank, host in enumerate(hosts)})

    assert [(Path(file).stem, rank) for file, rank in capture.logs] == list(zip(hosts, range(4), strict=True))


@for_each(("clients", "owners"), [("3/4", [None]), ("3/12", [2, 3, 7, 9])])
def test_numbers_beyond_the_size_of_the_job_are_those_of_hosts(clients: str, owners: list[int], tmp_path: Path) -> None:
    late = (
        f"torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. {clients} clients joined.\n"
    )
    said = {"gpu-a02.log": "step 1\n", "gpu-a03.log": "step 1\n", "gpu-b07.log": late, "gpu-b09.log": "step 1\n"}

    assert ranks(read(tmp_path / clients.replace("/", "-"), said)) == owners


def test_workers_that_say_their_ranks_give_those_of_their_node(tmp_path: Path) -> None:
    lines = [
        "[default0]:rank 4 on cpu-2\n",
        "[default1]:rank 5 on cpu-2\n",
        "[default1]:CUDA error: device-side assert\n",
    ]

    capture = read(tmp_path, {"console.log": "".join(lines)})

    assert ranks(capture) == [4, 5]
    assert [e.rank for e in capture.events] == [5]


def test_the_first_attempt_that_failed_is_judged_and_the_rest_is_listed(tmp_path: Path) -> None:
    files = {f"run/attempt_{attempt}/0/stderr.log": CLOSED.format(rank=0) for attempt in (1, 2)}
    files["run/attempt_0/0/stderr.log"] = "step 1\n"

    capture = read(tmp_path, files)
    chosen = read(tmp_path, files, Choice(attempt=2))

    assert [one.why for one in capture.set_aside] == [
        "from attempt 0; attempt 1 is judged (--attempt)",
        "from attempt 2; attempt 1 is judged (--attempt)",
    ]
    assert {e.file for e in chosen.events} == {str(tmp_path / "run/attempt_2/0/stderr.log")}


def test_a_retry_s_folder_and_torchrun_s_inside_it_are_one_attempt(tmp_path: Path) -> None:
    capture = read(
        tmp_path,
        {
            "attempt_0/vm/logs/stderr.log": "step\n",
            "attempt_0/vm/logs/run/attempt_0/1/stderr.log": CLOSED.format(rank=1),
        },
    )

    assert capture.set_aside == ()


def test_dumps_in_the_folder_where_torch_puts_them_are_found_and_other_hidden_files_are_not(tmp_path: Path) -> None:
    from forkpoint.evidence.files import find_files  # noqa: PLC0415

    for name in (".cache/torch/comm_lib_trace_rank_0", ".cache/pip/wheel", ".git/HEAD", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    assert find_files([str(tmp_path)]) == [str(tmp_path / ".cache/torch/comm_lib_trace_rank_0")]


# ---------------------------------------------------------------------------------------------------------------------
# Logs that hold nothing: the rank exists, and nothing else is known of it.


@for_each(
    ("logs", "empty", "found"),
    [
        (["log_rank_0.txt", "log_rank_1.txt"], "log_rank_2.txt", [2]),
        (["out_0.txt", "out_1.txt"], "out_2.txt", [2]),
        (["run/attempt_0/0/stderr.log", "run/attempt_0/1/stderr.log"], "run/attempt_0/2/stderr.log", [2]),
        (["log_rank_0.txt", "log_rank_1.txt"], "report_rank_2.txt", []),
        (["log_rank_0.txt", "log_rank_1.txt"], "log_rank_.txt", []),
        (["run/attempt_1/0/stderr.log", "run/attempt_1/1/stderr.log"], "run/attempt_0/2/stderr.log", []),
    ],
    ids=["spelled", "placed", "torchrun's folder", "another form", "no number", "another attempt"],
)
def test_an_empty_file_named_like_the_logs_of_other_ranks_is_a_rank(
    tmp_path: Path, logs: list[str], empty: str, found: list[int]
) -> None:
    capture = read(tmp_path, {**dict.fromkeys(logs, "step 1\n"), empty: ""})

    assert [rank for _, rank in capture.empty_logs] == found
    assert 2 not in ranks(capture)


# ---------------------------------------------------------------------------------------------------------------------
# The words of an abort, which C++ prints without a rank.

SAID = "step 1\n" * 4


@for_each(
    ("console", "owner"),
    [
        (SAID + REFUSED + torchrun_table((2, -6), (0, -15), (1, -15)), 2),
        (SAID + REFUSED + torchrun_table((2, -6), (0, -6), (1, -15)), None),
        (SAID + REFUSED + REFUSED + torchrun_table((2, -6), (0, -15), (1, -15)), None),
        (SAID + REFUSED + torchrun_table((2, 1), (0, -15), (1, -15)), None),
        (SAID + REFUSED, None),
        (f"[rank1]: {REFUSED}{torchrun_table((2, -6), (0, -15), (1, -15))}", 1),
    ],
    ids=["one rank aborted", "two did", "two lines", "another exit code", "no table", "it says whose it is"],
)
def test_an_abort_in_a_launcher_s_console_is_of_the_only_rank_that_was_ended_so(
    tmp_path: Path, console: str, owner: int | None
) -> None:
    told = [e for e in read(tmp_path, {"console.log": console}).events if e.pattern == "terminate-called"]

    assert {e.rank for e in told} == {owner}


@for_each(
    ("second", "owners"),
    [(REFUSED, {0, 2}), (REFUSED.replace("1280 vs", "1284 vs"), {None})],
    ids=["the same words", "other words"],
)
def test_aborts_of_several_ranks_are_theirs_if_all_printed_the_same(
    tmp_path: Path, second: str, owners: set[int | None]
) -> None:
    console = SAID + REFUSED + second + torchrun_table((2, -6), (0, -6), (1, -15))

    events = read(tmp_path, {"console.log": console}).events

    assert {e.rank for e in events if e.kind is LogKind.SIZES_DIFFER} == owners


def test_only_the_words_of_the_abort_become_that_rank_s(tmp_path: Path) -> None:
    console = f"{TIMED_OUT}\n{SAID}{REFUSED}{SAID}{TIMED_OUT}\n{torchrun_table((2, -6), (0, -15), (1, -15))}"

    events = read(tmp_path, {"console.log": console}).events

    assert {(e.kind, e.rank) for e in events if e.kind in (LogKind.PEER_TIMEOUT, LogKind.SIZES_DIFFER)} == {
        (LogKind.PEER_TIMEOUT, None),
        (LogKind.SIZES_DIFFER, 2),
    }
