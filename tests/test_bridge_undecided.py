"""Sites of undecided verdicts: what could have kept a rank from the call, said so that it stays true."""

import textwrap
from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Cause, Site
from small_jobs import SmallJob, as_py_spy

TORCH = "/opt/lib/python3.12/site-packages/torch/distributed"
PROGRAM = textwrap.dedent("""
    import torch.distributed as dist

    def main(rank, x, data, plateau):
        for step in range(100):
            if rank == 0:
                data.log(step)
            {skips}
            dist.all_reduce(x)  # waits
            if plateau.update(data.evaluate(x).item()):
                break
        dist.barrier()
""").lstrip()


def undecided(skips: str, folder: Path) -> tuple[Site, ...]:
    """One rank waits, and of the others there is no evidence."""
    source = PROGRAM.format(skips=skips)
    (folder / "train.py").write_text(source)
    line = next(number for number, text in enumerate(source.split("\n"), 1) if text.endswith("# waits"))
    job = SmallJob(4)
    frames = [{"name": "main", "filename": "/train/train.py", "line": line}]
    for _ in range(3):
        job.op(frames=frames)
    job.op([0], frames=frames, done=False)
    verdict = forkpoint.diagnose(job.capture([0]), source=[str(folder)])
    assert verdict.cause is Cause.INCONCLUSIVE
    assert not any(fix.patch for fix in verdict.fixes)
    return verdict.sites


def test_decisions_that_make_a_rank_miss_the_call_are_listed_before_the_place_where_others_wait(tmp_path: Path) -> None:
    sites = undecided("pass", tmp_path)

    told = [site.why or "" for site in sites]
    assert sites[0].condition == "plateau.update(data.evaluate(x).item())"
    assert told[0].startswith(
        "a rank on which `plateau.update(data.evaluate(x).item())` is true misses the call at train.py:"
    )
    assert any(why.endswith("waits here") for why in told[1:])


def test_a_branch_after_which_all_ranks_come_to_the_call_is_not_listed(tmp_path: Path) -> None:
    assert not any(site.condition == "rank == 0" for site in undecided("pass", tmp_path))


def test_a_round_that_is_skipped_on_one_side_of_a_condition_is_told_with_that_side(tmp_path: Path) -> None:
    sites = undecided("if not x.isfinite().all(): continue", tmp_path)

    told = [site.why or "" for site in sites if site.condition == "not x.isfinite().all()"]
    assert [why.partition(" misses ")[0] for why in told] == ["a rank on which `not x.isfinite().all()` is true"]


RECOVERS = textwrap.dedent("""
    import torch.distributed as dist

    def restore(x):
        dist.broadcast(x, 0)  # odd

    def step(x, local):
        try:
            local.forward(x)
        except RuntimeError:  # fork
            restore(x)  # recovers
        dist.all_reduce(x)  # usual

    step(x, local)  # begins
""").lstrip()


def test_where_stacks_alone_show_who_left_the_decision_comes_before_what_the_call_was_given(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RECOVERS)
    lines = {text.rpartition("# ")[2]: number for number, text in enumerate(RECOVERS.split("\n"), 1) if "# " in text}
    calls = {"odd": [("restore", "odd"), ("step", "recovers")], "usual": [("step", "usual")]}
    (tmp_path / "evidence").mkdir()
    for rank in range(4):
        side, call = ("odd", "broadcast") if rank == 2 else ("usual", "all_reduce")
        own = [*calls[side], ("<module>", "begins")]
        frames = [
            (call, f"{TORCH}/distributed_c10d.py", 9),
            *((name, "/train/train.py", lines[mark]) for name, mark in own),
        ]
        (tmp_path / "evidence" / f"rank_{rank}_stacks.json").write_text(as_py_spy(*frames))

    verdict = forkpoint.diagnose(tmp_path / "evidence", source=tmp_path / "train.py")

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, (2,))
    assert (verdict.sites[0].line, verdict.sites[0].condition) == (lines["fork"], "except RuntimeError")
    assert "rank 2 caught `RuntimeError` here and ran restore()" in (verdict.sites[0].why or "")
    assert not any("stuck" in (site.why or "") for site in verdict.sites)
