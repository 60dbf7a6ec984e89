"""A node is named with odds that are never better than the truth, and not for one job that was tried again and again."""

import math
from dataclasses import replace
from pathlib import Path

from bench.history_jobs import plant
from forkpoint.history.incident import HostPart, KeptIncident
from forkpoint.history.nodes import HostExposure, binomial_tail, say_odds, to_confirm, weigh
from forkpoint.history.queries import host_exposures
from forkpoint.history.store import open_store
from looping import for_each

SOME = next(one for n in range(99) if (one := plant(n).incident).concerns_hardware)


def on(suspect: str, number: int, job: str, fork: str = "f", gpu: int = 3) -> KeptIncident:
    hosts = tuple(HostPart(host, host == suspect, (gpu,) if host == suspect else ()) for host in ("a", "b", "c", "d"))
    return replace(
        SOME, id=f"{number:08}", hosts=hosts, ranks_placed=32, fingerprint=fork, job=replace(SOME.job, job=job)
    )


def exposures_of(tmp_path: Path, *incidents: KeptIncident) -> dict[str, HostExposure]:
    store = open_store(str(tmp_path / "history.sqlite"))
    for incident in incidents:
        store.write(incident)
    found = {one.host: one for one in host_exposures(store)}
    store.close()
    return found


@for_each("least, trials, chance", [(1, 10, 0.1), (3, 20, 0.05), (7, 7, 0.5), (60, 200, 0.25), (2, 900, 0.0001)])
def test_the_tail_is_the_sum_of_the_binomial_terms(least: int, trials: int, chance: float) -> None:
    terms = (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(least, trials + 1))

    assert math.isclose(binomial_tail(least, trials, chance), math.fsum(terms), rel_tol=1e-9)


def test_the_tail_at_its_ends() -> None:
    assert binomial_tail(0, 5, 0.1) == 1.0
    assert binomial_tail(1, 5, 0.0) == 0.0
    assert binomial_tail(3, 5, 1.0) == 1.0


def test_attempts_of_one_job_at_one_fork_count_once(tmp_path: Path) -> None:
    found = exposures_of(tmp_path, *(on("a", n, "same") for n in range(9)), on("b", 20, "other"))

    assert found["a"].suspected == 1
    assert found["a"].took_part == 2
    assert found["a"].expected == 1.25
    assert found["a"].gpus == {3: 1}


def test_bugs_of_code_say_nothing_of_nodes(tmp_path: Path) -> None:
    bugs = [replace(on("a", n, f"job-{n}"), action="fix-code") for n in range(5)]

    assert exposures_of(tmp_path, *bugs) == {}


def test_a_host_that_is_a_suspect_in_different_jobs_is_named_with_its_gpu_and_a_way_to_confirm(tmp_path: Path) -> None:
    incidents = [on("a", n, f"job-{n}") for n in range(8)] + [
        on("bcd"[n % 3], 50 + n, f"x-{n}", gpu=n) for n in range(6)
    ]
    first, *others = weigh(list(exposures_of(tmp_path, *incidents).values()))

    assert first.name == "a GPU 3"
    assert first.is_notable
    assert (first.best.suspected, first.took_part) == (8, 14)
    assert "1 in " in say_odds(first.best.odds)
    assert "CUDA_VISIBLE_DEVICES=3 forkpoint doctor" in to_confirm(first)[0]
    assert not any(node.is_notable for node in others)


def test_a_suspect_that_was_always_alone_proves_nothing() -> None:
    (node,) = weigh([HostExposure("only", 5, 5, 5.0, 0.6)])

    assert not node.is_notable
    assert say_odds(node.odds.odds) == "as expected by chance"
