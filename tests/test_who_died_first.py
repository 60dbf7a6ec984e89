"""Of processes that ended, which went before anyone complained: consequences are no causes."""

from pathlib import Path

import pytest

from forkpoint.model.verdict import Action, Cause, Verdict
from texts import CLOSED, MAIN, REFUSED, TIMED_OUT, diagnose, logs, raised, stack, torchrun_table

STEP = "step 7\n"


def test_ranks_that_the_launcher_stopped_are_not_lost(tmp_path: Path) -> None:
    """One rank got another size and was aborted; the launcher ended the others, of which one had not said anything yet."""
    said = {0: raised(0, CLOSED), 1: "", 2: raised(2, CLOSED), 3: REFUSED + stack(MAIN)}
    console = torchrun_table((3, -6), (0, -15), (1, -15), (2, -15), stopped=(0, 1, 2))

    verdict = diagnose(tmp_path, {**logs(said), "console.log": console})

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.METADATA_MISMATCH, (), Action.FIX_CODE)


def test_an_abort_after_a_watchdog_timeout_is_no_cause(tmp_path: Path) -> None:
    timeout = (
        "[rank{0}]:[E1116 02:03:37.123456789 ProcessGroupNCCL.cpp:689] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=14, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000) ran for 20010 milliseconds before "
        "timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank {0}] Process group watchdog thread terminated with exception\n"
    )

    verdict = diagnose(tmp_path, logs({rank: timeout.format(rank) for rank in (0, 1)}))

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())


def test_an_abort_whose_log_was_cut_at_the_front_is_no_cause(tmp_path: Path) -> None:
    aborted = "terminate called after throwing an instance of 'c10::DistBackendError'\n"

    assert diagnose(tmp_path, logs({0: STEP, 1: STEP, 2: aborted, 3: STEP})).suspects == ()


def test_a_rank_that_was_killed_first_is_lost_by_its_launcher_s_word(tmp_path: Path) -> None:
    console = torchrun_table((2, -9), (0, -15), (1, -15), (3, -15), stopped=(0, 1, 3))

    verdict = diagnose(tmp_path, {**logs(dict.fromkeys(range(4), "")), "console.log": console})

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.RANK_LOST, (2,), Action.REPLACE_OR_RETRY)


def test_a_crash_is_looked_into_before_it_is_tried_again(tmp_path: Path) -> None:
    console = torchrun_table((2, -11), (0, -15), (1, -15), (3, -15), stopped=(0, 1, 3))

    verdict = diagnose(tmp_path, {**logs(dict.fromkeys(range(4), "")), "console.log": console})

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.RANK_LOST, (2,), Action.INVESTIGATE)


def test_a_first_failure_without_a_reason_accuses_nobody(tmp_path: Path) -> None:
    console = torchrun_table((0, 1), (1, -15), (2, -15), (3, -15), stopped=(1, 2, 3))

    assert diagnose(tmp_path, {"console.log": console}).suspects == ()


def test_an_error_before_the_abort_is_its_cause(tmp_path: Path) -> None:
    own = raised(2, "ValueError: bad sample 71", code="raise ValueError(...)").replace("distributed_c10d.py", "x.py")
    said = {r: raised(r, CLOSED) for r in (0, 1, 3)} | {2: own + "terminate called without an active exception\n"}

    verdict = diagnose(tmp_path, logs(said))

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.RANK_LOST, (2,), Action.FIX_CODE)
    assert verdict.headline.startswith('Rank 2 raised ValueError ("bad sample 71")')


def test_an_exception_after_which_a_rank_lived_on_was_handled(tmp_path: Path) -> None:
    handled = 'Traceback (most recent call last):\n  File "/job/data.py", line 3, in get\nValueError: bad sample 71\n'
    dumped = (
        "[rank2]:[E1116 02:03:37.123456789 ProcessGroupNCCL.cpp:1628] [PG ID 0 PG GUID 0(default_pg) Rank 2] "
        "ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only active collectives: 0\n"
    )

    assert diagnose(tmp_path, logs({0: STEP, 1: STEP, 2: handled + dumped, 3: STEP})).suspects == ()


def test_the_word_of_a_log_that_ends_in_the_middle_of_a_line_is_not_final(tmp_path: Path) -> None:
    cut = raised(2, CLOSED)[:-60]
    said = {0: raised(0, CLOSED), 1: raised(1, CLOSED), 3: raised(3, CLOSED)}

    verdict = diagnose(tmp_path, {**logs(said), "log_rank_2.txt": cut})

    assert verdict.suspects == ()


OF_FOUR = "[I1116 03:11:01.959692207 ProcessGroupNCCL.cpp:988] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL initialization options: size: 4, global rank: 0, TIMEOUT(ms): 15000, USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0, SPLIT_COLOR: -2, PG Name: 0\n"


@pytest.mark.parametrize(
    ("size", "last", "cause"),
    [
        (OF_FOUR, "step 8\n", Cause.RANK_LOST),
        (OF_FOUR, "training finished\n", Cause.DIVERGENT_PATH),
        ("", "step 8\n", Cause.INCONCLUSIVE),
    ],
)
def test_the_only_rank_that_did_not_mention_a_closed_connection_went_first_in_a_job_of_known_size(
    tmp_path: Path, size: str, last: str, cause: Cause
) -> None:
    said = {r: raised(r, CLOSED) for r in (1, 3)} | {0: size + raised(0, CLOSED), 2: last}

    assert diagnose(tmp_path, logs(said)).cause is cause


def test_a_node_whose_agent_was_told_to_stop_was_taken_away(tmp_path: Path) -> None:
    told = "W1116 02:07:38.114000 6817 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    lost = "".join(f"[default{local}]:rank {4 + local} on cpu-2\n" for local in range(4)) + told
    other = "".join(f"[default{rank}]:rank {rank} on cpu-1\n" for rank in range(4)) + "".join(
        raised(r, CLOSED) for r in range(4)
    )

    verdict = diagnose(tmp_path, {"console_a.log": other, "console_b.log": lost})

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (4, 5, 6, 7))


def test_the_first_attempt_s_failure_goes_before_the_table_of_the_last(tmp_path: Path) -> None:
    line = "E1116 02:03:3{}.548000 6072 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {}) local_rank: {} (pid: 6081) of binary: python\n"
    table = torchrun_table((0, 1), (1, -15), (2, -15), (3, -15))

    verdict = diagnose(tmp_path, {"console.log": line.format(1, -9, 2) + line.format(7, 1, 0) + table})

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (2,))


FAILED = "E1116 02:03:31.548000 6072 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {}) local_rank: {} (pid: 6081) of binary: python\n"
STOPS = "W1116 02:03:31.300000 6072 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {} closing signal SIGTERM\n"


def without_table(folder: Path, *, workers: int, code: int = -7, after: str = "") -> Verdict:
    """A console of an agent that restarts its workers: local rank 2 ended, the others were told to stop."""
    said = "".join(raised(rank, CLOSED) for rank in (1, 3))
    stopped = "".join(STOPS.format(6080 + number) for number in range(workers - 1))
    return diagnose(folder, {"console.log": said + stopped + FAILED.format(code, 2) + after})


def test_a_worker_that_ended_first_is_a_rank_where_all_that_speak_are_of_its_node(tmp_path: Path) -> None:
    verdict = without_table(tmp_path, workers=4)

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (2,))
    assert verdict.headline == "Rank 2 was ended by SIGBUS."


def test_a_worker_of_a_node_on_which_fewer_run_than_ranks_speak_may_be_any_rank(tmp_path: Path) -> None:
    assert without_table(tmp_path, workers=3).suspects == ()


def test_what_a_restarted_rank_prints_is_not_of_the_process_that_ended(tmp_path: Path) -> None:
    after = raised(2, "RuntimeError: Timed out waiting 15000ms for recv operation to complete")

    assert without_table(tmp_path, workers=4, after=after).suspects == (2,)


def test_a_worker_that_ended_with_a_code_of_its_own_is_not_named_for_it(tmp_path: Path) -> None:
    assert without_table(tmp_path, workers=4, code=1).suspects == ()


@pytest.mark.parametrize(("kept", "suspects"), [("stdout", ()), ("stderr", (1,))])
def test_a_rank_of_which_only_what_it_printed_without_error_is_kept_is_not_said_to_be_silent(
    tmp_path: Path, kept: str, suspects: tuple[int, ...]
) -> None:
    said = {f"attempt_0/{rank}/stderr.log": raised(rank, CLOSED) for rank in (0, 2, 3)}

    verdict = diagnose(tmp_path, {**said, f"attempt_0/1/{kept}.log": STEP, "attempt_0/0/stdout.log": OF_FOUR})

    assert verdict.suspects == suspects


def test_a_silent_rank_was_stopped_where_the_launcher_saw_another_fail_first_of_which_no_log_is_left(
    tmp_path: Path,
) -> None:
    failed = "E1116 02:03:31.548000 6072 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 2 (pid: 6081) of binary: python\n"
    said = {f"attempt_0/{rank}/stderr.log": raised(rank, CLOSED) for rank in (1, 3)}
    again = failed.replace("02:03:31", "02:04:31") + torchrun_table((0, 1), (1, 1), (2, 1), (3, 1))
    files = {**said, "attempt_0/0/stderr.log": OF_FOUR + STEP, "agent.log": failed + again}

    assert diagnose(tmp_path, files).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Half of the ranks can be lost, and a rank of which only an empty log is left is no suspect.

OWN = 'Traceback (most recent call last):\n  File "/job/data.py", line 3, in get\nValueError: bad sample 71\n'


def test_one_of_two_ranks_that_raised_is_lost_where_the_other_has_a_log(tmp_path: Path) -> None:
    verdict = diagnose(tmp_path, logs({0: raised(0, CLOSED), 1: OWN}))

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.RANK_LOST, (1,), Action.FIX_CODE)


def test_one_of_two_ranks_that_raised_is_not_named_without_a_log_of_the_other(tmp_path: Path) -> None:
    """Rank 0 may have failed before it."""
    assert diagnose(tmp_path, logs({1: OWN})).suspects == ()


def test_both_ranks_that_raised_are_not_both_lost(tmp_path: Path) -> None:
    assert diagnose(tmp_path, logs({0: OWN, 1: OWN})).suspects == ()


def test_one_of_two_ranks_that_only_fell_silent_is_not_lost(tmp_path: Path) -> None:
    assert (
        diagnose(tmp_path, logs({0: OF_FOUR.replace("size: 4", "size: 2") + raised(0, CLOSED), 1: ""})).suspects == ()
    )


def test_an_empty_log_makes_the_job_larger_and_its_rank_no_suspect(tmp_path: Path) -> None:
    said = logs({r: raised(r, CLOSED) for r in (0, 1)})

    verdict = diagnose(tmp_path, {**said, "log_rank_2.txt": ""})

    assert verdict.coverage.ranks == 3
    assert verdict.suspects == ()


def test_a_rank_that_raised_beside_an_empty_log_is_lost_and_that_of_the_log_is_not(tmp_path: Path) -> None:
    verdict = diagnose(tmp_path, {**logs({0: raised(0, CLOSED), 1: OWN}), "log_rank_2.txt": ""})

    assert (verdict.cause, verdict.suspects, verdict.coverage.ranks) == (Cause.RANK_LOST, (1,), 3)


def of_shell(how: str, pid: int = 8432) -> str:
    return f"launch.sh: line 13:  {pid} {how}      RANK=$r python train.py > logs/train.$r.out 2>&1\n"


def under_shell(folder: Path, shell: str, **changed: str) -> Verdict:
    """Rank 2 is process 8432 and says nothing of a failure; the others lost their connections. `changed`: what ranks say instead."""
    said = {r: f"rank={r} world=4 pid={8430 + r}\n{raised(r, CLOSED)}" for r in (0, 1, 3)}
    said[2] = "rank=2 world=4 pid=8432\nstep 8\n"
    said |= {int(rank[1:]): text for rank, text in changed.items()}
    return diagnose(folder, {**logs({r: text for r, text in said.items() if text}), "launch.txt": shell})


@pytest.mark.parametrize("how", ["Segmentation fault", "Segmentation fault      (core dumped)", "Bus error", "Killed"])
def test_a_process_that_a_script_saw_end_by_a_signal_is_the_rank_that_printed_its_number(
    tmp_path: Path, how: str
) -> None:
    verdict = under_shell(tmp_path, of_shell(how))

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (2,))
    assert verdict.findings[0].evidence[0].file.endswith("launch.txt")


def test_a_crash_counts_without_the_log_of_another_rank_and_a_kill_does_not(tmp_path: Path) -> None:
    """The rank that is not heard may have failed first, and its launcher have killed the rest."""
    assert under_shell(tmp_path / "crashed", of_shell("Segmentation fault"), r1="").suspects == (2,)
    assert under_shell(tmp_path / "killed", of_shell("Killed"), r1="").suspects == ()


@pytest.mark.parametrize(
    ("shell", "changed"),
    [
        (of_shell("Segmentation fault", 777), {"r0": "rank=0 pid=8430\nstep 8\n"}),
        (of_shell("Segmentation fault") + of_shell("Segmentation fault", 8430), {"r0": "rank=0 pid=8430\nstep 8\n"}),
        (
            of_shell("Segmentation fault"),
            {"r0": f"rank=0 pid=8430\n{raised(0, TIMED_OUT)}", "r2": f"pid=8432\n{raised(2, CLOSED)}"},
        ),
        (of_shell("Segmentation fault"), {"r0": "rank=0 pid=8432\nstep 8\n"}),
    ],
    ids=["nobody's number", "two ended so", "it lost its connection first", "two ranks printed it, on two hosts"],
)
def test_the_word_of_a_script_names_nobody_where_it_may_be_another_process_or_what_followed(
    tmp_path: Path, shell: str, changed: dict[str, str]
) -> None:
    assert under_shell(tmp_path, shell, **changed).suspects == ()
