"""Tables of how processes ended: who was killed first, and who only ended because of it."""

from pathlib import Path

from forkpoint.evidence.processes import read_exit_table
from forkpoint.model.verdict import Cause
from texts import CLOSED, diagnose, logs, raised

PODS = "NAME     RANK   STATUS   EXIT CODE\n"


def _pods(**codes: int) -> str:
    return PODS + "".join(f"pod-{name[1:]}    {name[1:]}      Error    {code}\n" for name, code in codes.items())


def test_signals_are_told_from_codes_of_shells_and_of_python() -> None:
    told = [(e.rank, e.detail("code")) for e in read_exit_table(_pods(r0=1, r1=137, r2=-9, r3=0), "pods.txt")]

    assert told == [(0, "1"), (1, "-9"), (2, "-9"), (3, "0")]


def test_a_text_without_both_columns_is_no_table() -> None:
    assert not list(read_exit_table("NAME     RANK   STATUS\npod-0    0      Error\n", "pods.txt"))
    assert not list(read_exit_table("rank 3: exit code 137\n", "log"))


def _verdict(tmp_path: Path, **codes: int) -> tuple[Cause, tuple[int, ...]]:
    said = {rank: raised(rank, CLOSED) for rank in (0, 1, 3)} | {2: "step 120\n"}
    verdict = diagnose(tmp_path, {**logs(said), "pods.txt": _pods(**codes)})
    return verdict.cause, verdict.suspects


def test_the_only_process_that_a_signal_ended_was_lost_first(tmp_path: Path) -> None:
    assert _verdict(tmp_path, r0=1, r1=1, r2=137, r3=1) == (Cause.RANK_LOST, (2,))


def test_of_several_that_signals_ended_none_is_known_to_be_the_first(tmp_path: Path) -> None:
    assert _verdict(tmp_path, r0=137, r1=1, r2=1, r3=137)[1] != (0,)


def test_a_process_that_was_killed_after_another_had_raised_is_not_named(tmp_path: Path) -> None:
    own = raised(0, "ValueError: bad sample 71", code="raise ValueError(...)").replace("distributed_c10d.py", "x.py")
    said = {0: own, 1: raised(1, CLOSED), 2: "step 120\n", 3: raised(3, CLOSED)}
    verdict = diagnose(tmp_path, {**logs(said), "pods.txt": _pods(r0=1, r1=1, r2=137, r3=1)})

    assert 2 not in verdict.suspects


def test_a_process_that_was_killed_beside_one_whose_log_is_lost_is_not_named(tmp_path: Path) -> None:
    said = {1: raised(1, CLOSED), 2: "step 120\n", 3: raised(3, CLOSED)}
    verdict = diagnose(tmp_path, {**logs(said), "pods.txt": _pods(r0=1, r1=1, r2=137, r3=1)})

    assert verdict.suspects == ()
