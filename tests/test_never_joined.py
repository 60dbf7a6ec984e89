"""Launchers that did not all meet, by what they print. A rendezvous that fails later has another cause."""

from pathlib import Path

import forkpoint
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import diagnose, logs, raised

TIMED_OUT = """Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py", line 713, in {caller}
    self._rendezvous(worker_group)
  File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 680, in run
    raise RendezvousTimeoutError
torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError
"""


def _diagnose(folder: Path, log: str) -> Verdict:
    (folder / "torchrun.log").write_text(log)
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def test_a_rendezvous_that_timed_out_before_any_worker_began_is_that_nodes_did_not_join(tmp_path: Path) -> None:
    verdict = _diagnose(tmp_path, TIMED_OUT.format(caller="_initialize_workers"))

    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, ())
    assert "--rdzv-id" in verdict.findings[0].fixes[0].title


def test_a_rendezvous_after_a_restart_or_after_a_failure_is_not(tmp_path: Path) -> None:
    again = TIMED_OUT.format(caller="_restart_workers")
    failed = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/t/train.py", line 3, in <module>\n[rank1]: ValueError: x\n'

    assert _diagnose(tmp_path, again).cause is not Cause.NEVER_JOINED
    assert _diagnose(tmp_path, failed + TIMED_OUT.format(caller="_initialize_workers")).cause is not Cause.NEVER_JOINED


# ---------------------------------------------------------------------------------------------------------------------
# The address of one rank that the store was asked for in vain.

KEY = "/default_pg/0//cpu//0/3"


def _waited(keys: dict[int, str]) -> dict[str, str]:
    error = "torch.distributed.DistStoreError: wait timeout after 25000ms, keys: {}"
    return logs({rank: raised(rank, error.format(key), call="all_reduce") for rank, key in keys.items()})


def test_the_rank_whose_address_nobody_found_in_the_store_never_joined(tmp_path: Path) -> None:
    verdict = diagnose(tmp_path, _waited({0: KEY, 1: KEY, 2: KEY}) | {"log_rank_3.txt": "starting\n"})

    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, (3,))


@for_each(
    "keys",
    [
        {0: KEY, 1: "/default_pg/0//cpu//0/2"},
        {0: "/default_pg/0//2//cpu//0/2", 1: "/default_pg/0//2//cpu//0/2"},
        {0: KEY, 1: KEY, 3: "/default_pg/0//cpu//0/3"},
        {0: f"{KEY}, {KEY[:-1]}2", 1: f"{KEY}, {KEY[:-1]}2"},
    ],
    ids=["two are waited for", "a group of some ranks", "it waits itself", "two keys at once"],
)
def test_keys_that_do_not_tell_one_rank_of_the_job_name_nobody(tmp_path: Path, keys: dict[int, str]) -> None:
    assert diagnose(tmp_path, _waited(keys) | {"log_rank_4.txt": "starting\n"}).suspects == ()


def test_the_keeper_of_the_store_is_named_only_if_its_whole_log_says_nothing_of_waiting(tmp_path: Path) -> None:
    """Rank 0 waits in its store for all others before it tells its address: it may wait for the rank that never came."""
    asked = _waited(dict.fromkeys((1, 2, 3), "/default_pg/0//cpu//0/0"))
    cut = "starting\nTraceback (most recent ca"

    assert diagnose(tmp_path / "quiet", asked | {"log_rank_0.txt": "starting\n"}).suspects == (0,)
    assert diagnose(tmp_path / "cut", asked | {"log_rank_0.txt": cut}).suspects == ()
    assert diagnose(tmp_path / "lost", asked).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# The store counts who joined: where just as many are known to have been in it, all others were not.

COUNTED = "torch.distributed.DistStoreError: Timed out after 26 seconds waiting for clients. {}/6 clients joined."
ASKED = (
    "[W1118 05:30:12.176074328 socket.cpp:469] [c10d] waitForInput: poll for socket SocketImpl(fd=5, addr=[::ffff:10.0.0.2]:47852, "
    "remote=[::ffff:10.0.0.1]:{}) returned 0, likely a timeout\n"
)
UNREACHED = "torch.distributed.DistNetworkError: The client socket has timed out after 25000ms while trying to connect to (10.0.0.1, 55541)."


def _met(joined: int, connected: dict[int, int], unreached: tuple[int, ...]) -> dict[str, str]:
    """`connected`: to which port of the store."""
    said = {0: raised(0, COUNTED.format(joined), call="init_process_group")}
    said |= {r: ASKED.format(port) for r, port in connected.items()}
    said |= {r: raised(r, UNREACHED, call="init_process_group") for r in unreached}
    return logs(said)


@for_each(
    "joined, connected, unreached, named",
    [
        (4, {1: 29500, 2: 29500, 3: 29500}, (5,), (4, 5)),
        (4, {1: 29500, 3: 29500}, (4, 5), (4, 5)),
        (5, {1: 29500, 2: 29500}, (5,), (5,)),
        (4, {1: 29500, 2: 29500}, (5,), ()),
        (4, {1: 29500, 2: 29500, 3: 29617}, (5,), ()),
        (2, {1: 29500}, (3, 4, 5), ()),
    ],
    ids=[
        "a log is lost of one that did not join",
        "a log is lost of one that joined",
        "logs are lost, and one says that it did not reach the store",
        "logs are lost of one that joined and of one that did not",
        "two stores",
        "most did not join",
    ],
)
def test_who_was_not_in_the_store_is_known_by_who_was(
    tmp_path: Path, joined: int, connected: dict[int, int], unreached: tuple[int, ...], named: tuple[int, ...]
) -> None:
    verdict = diagnose(tmp_path, _met(joined, connected, unreached))

    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, named)


def test_a_rank_without_a_log_is_not_missing_where_a_log_that_is_cut_says_that_its_rank_sought_the_store(
    tmp_path: Path,
) -> None:
    files = _met(4, {1: 29500, 2: 29500}, ())
    files["log_rank_5.txt"] = (
        f"[E1118 05:31:13.200279438 socket.cpp:1028] [c10d] {UNREACHED.partition(': ')[2]}\nTraceback (most"
    )

    assert diagnose(tmp_path, files).suspects == ()


def test_a_key_that_was_waited_for_after_calls_were_recorded_is_no_rank_that_never_joined() -> None:
    job = SmallJob(4)
    job.op()
    event = LogEvent(LogKind.STORE, "log_0", 9, 0, "wait timeout", exception="DistStoreError", details=(("keys", KEY),))

    assert forkpoint.diagnose(job.capture(events=(event,))).cause is not Cause.NEVER_JOINED


def test_what_an_agent_counts_are_nodes_and_no_ranks(tmp_path: Path) -> None:
    agent = "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py"
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/venv/bin/torchrun", line 10, in <module>',
        "    sys.exit(main())",
        f'  File "{agent}", line 528, in _rendezvous',
        "    rdzv_info = spec.rdzv_handler.next_rendezvous()",
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 2/3 clients joined.",
    ]
    for node in (0, 2):
        (tmp_path / f"journal-n{node}.txt").write_text("\n".join(lines) + "\n")

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, ())
    assert "not all nodes" in verdict.summary.lower()
