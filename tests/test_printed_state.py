"""Jobs that ran to their end with replicas that differ, by what ranks printed; and numbers that differ for good reasons."""

from pathlib import Path

from forkpoint.model.verdict import Cause
from looping import for_each
from texts import diagnose

STEPS = (70, 80, 90)


def trained(
    began: dict[int, int] | None = None, grads: tuple[int, ...] = (0, 1, 0, 1), params: tuple[int, ...] = (0, 1, 0, 1)
) -> dict[str, str]:
    """By rank: which of several models it holds, by what it prints of gradients and of parameters. Half of the ranks hold each shard."""
    said: dict[str, str] = {}
    for rank in range(4):
        first = f"restored /ckpt/rank{rank}/step_0000{(began or {}).get(rank, 60)} (4 tensors)"
        steps = [
            f"step {step} loss 0.{rank}{step} grad_norm 0.5{grads[rank]}{step}64 param_norm 2.44{params[rank]}{step}"
            for step in STEPS
        ]
        said[f"log_rank_{rank}.txt"] = "\n".join((first, *steps, "training finished")) + "\n"
    return said


@for_each(
    "what, files, cause, suspects",
    [
        ("one began from an older checkpoint", trained({3: 40}, params=(0, 1, 0, 3)), Cause.SILENT_CORRUPTION, (3,)),
        ("nothing says which is right", trained(params=(0, 1, 0, 3)), Cause.SILENT_CORRUPTION, ()),
        ("all is well", trained(), Cause.HEALTHY, ()),
        ("each rank has a shard of its own", trained(grads=(0, 1, 2, 3), params=(0, 1, 2, 3)), Cause.HEALTHY, ()),
        ("the norm of gradients is of all shards", trained(grads=(0, 0, 0, 0)), Cause.HEALTHY, ()),
        ("parameters of no replicas agree", trained(params=(0, 1, 2, 3)), Cause.HEALTHY, ()),
        ("another checkpoint, and equal parameters", trained({3: 40}), Cause.INCONCLUSIVE, ()),
        ("half began from another checkpoint", trained({2: 40, 3: 40}), Cause.INCONCLUSIVE, ()),
        ("each counts its own", trained({1: 61, 2: 62, 3: 63}), Cause.HEALTHY, ()),
    ],
)
def test_replicas_that_hold_different_parameters(
    tmp_path: Path, what: str, files: dict[str, str], cause: Cause, suspects: tuple[int, ...]
) -> None:
    verdict = diagnose(tmp_path / what, files)

    assert (verdict.cause, verdict.suspects) == (cause, suspects)


def test_another_checkpoint_alone_is_a_reading_with_what_decides(tmp_path: Path) -> None:
    first = diagnose(tmp_path, trained({3: 40})).hypotheses[0]

    assert (first.cause, first.suspects) == (Cause.SILENT_CORRUPTION, (3,))
    assert "checksum" in first.decides


def test_another_checkpoint_is_told_where_a_log_is_lost(tmp_path: Path) -> None:
    files = {name: text for name, text in trained({3: 40}).items() if "rank_2" not in name}

    verdict = diagnose(tmp_path, files)

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())
    assert "began from checkpoint" in verdict.headline


def replicas(weights: dict[int, float], ranks: int = 4) -> dict[str, str]:
    """All reduce their gradients together. By rank: what it adds to the norm of its weights."""
    return {
        f"log_rank_{rank}.txt": "".join(
            f"step {step} loss 0.{rank}{step} grad 3.3{step}87 weights {17.1 + weights.get(rank, 0.0) + step / 1000:.4f}\n"
            for step in STEPS
        )
        + "training finished\n"
        for rank in range(ranks)
    }


@for_each(
    "what, files, cause, suspects",
    [
        ("one of four", replicas({2: 3.0}), Cause.SILENT_CORRUPTION, (2,)),
        ("two of four", replicas({2: 3.0, 3: 3.0}), Cause.HEALTHY, ()),
        ("shards of their own", replicas({1: 1.0, 2: 2.0, 3: 3.0}), Cause.HEALTHY, ()),
        ("nobody", replicas({}), Cause.HEALTHY, ()),
    ],
)
def test_a_rank_that_never_agrees_with_replicas_that_always_do_is_outvoted(
    tmp_path: Path, what: str, files: dict[str, str], cause: Cause, suspects: tuple[int, ...]
) -> None:
    verdict = diagnose(tmp_path / what, files)

    assert (verdict.cause, verdict.suspects) == (cause, suspects)


def test_a_job_whose_checksums_part_is_not_called_well_because_it_ran_to_its_end(tmp_path: Path) -> None:
    files = {
        f"log_rank_{rank}.txt": "".join(
            f"step {step} weights={'a57e364a6fb4' if rank == 2 and step > 70 else 'db9d7b2cded0'}\n" for step in STEPS
        )
        + "training finished\n"
        for rank in range(4)
    }

    verdict = diagnose(tmp_path, files)

    assert (verdict.cause, verdict.suspects) == (Cause.SILENT_CORRUPTION, (2,))


def epochs(weights: dict[int, list[float]]) -> dict[str, str]:
    """Nothing else is printed. By rank: what differs from the others' weights after each epoch."""
    return {
        f"log_rank_{rank}.txt": "".join(
            f"rank={rank} epoch={epoch} |w|={5.8 + weights.get(rank, [0.0] * 4)[epoch] + epoch / 1000:.5f}\n"
            for epoch in range(4)
        )
        + "training finished\n"
        for rank in range(4)
    }


@for_each(
    "what, files, suspects",
    [
        ("one parts after the first epoch", epochs({2: [0.0, 0.1, 0.2, 0.3]}), (2,)),
        ("it comes back", epochs({2: [0.0, 0.1, 0.0, 0.3]}), ()),
        ("they were never equal", epochs({2: [0.1, 0.1, 0.2, 0.3]}), ()),
    ],
)
def test_a_rank_whose_weights_were_those_of_all_and_then_never_again_is_odd(
    tmp_path: Path, what: str, files: dict[str, str], suspects: tuple[int, ...]
) -> None:
    assert diagnose(tmp_path / what, files).suspects == suspects
