"""Probes and fixes on the jobs that went wrong: patched, and run again with gloo."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from forkpoint.model.verdict import Fix, Probe
from looping import for_each, is_swept
from remedies.offered import CASES, offered, patched
from warm import run

pytestmark = pytest.mark.torch

PG_TIMEOUT = 3600
"""Longer than a job is given: what ends it with an exit code of its own is the probe, or that it has finished."""

# case -> what its first probe says, on which rank
PROBED = {
    "0001": (0, "`is_main_process()` (train.py:15) differs (time 1): rank 0: True; rank 1, 2, 3: False"),
    "0002": (3, "rank 3 caught `CorruptSample` (train.py:54) and would go on without the others"),
    "0003": (0, "rank 0 has been in `threading.Event().wait(timeout=3600)` (train.py:14) for 10 s"),
    "0005": (2, "`for ... in range(n)` (train.py:26) differs (time 4): rank 2: range(0, 5); rank 0, 1, 3: range(0, 6)"),
    "0007": (1, "`patience.exhausted(val_loss)` (train.py:54) differs (time 4): rank 1: True"),
    "0008": (2, "`not torch.isfinite(loss)` (train.py:33) differs (time 10): rank 2: True"),
    "0010": (0, "`self.ema is not None and loss > 10 * self.ema` (train.py:39) differs (time 7): rank 0: True"),
    "0011": (1, "`batch is None` (train.py:23) differs (time 6): rank 1: True"),
    "0012": (2, "`for ... in loader(rank, 16, device)` (train.py:28) differs (time 10): rank 2: 'has ended'"),
    "0015": (0, "order of `self.changed` (stats.py:18) differs (time 1): "),
    "0016": (1, "`bad.item() > 0` (train.py:28) differs (time 9): rank 1: True"),
    "0021": (1, "`for ... in range(micro_batches)` (train.py:12) differs (time 6): rank 1: range(0, 2)"),
    "0025": (1, "`parts` of all_gather (evaluate.py:8) differs (time 8): rank 1: [(8,) torch.int64"),
    "0049": (1, "rank 1 caught `BadRecord` (train.py:44) and would go on without the others"),
    "0051": (0, "`rank == 0` (train.py:27) differs (time 1): rank 0: True"),
    "0054": (7, 'rank 7 has been in `open(self.path, "wb")` (snapshots.py:16) for 10 s'),
    "0072": (1, "`error >= self.best` (keeper.py:18) differs (time 4): rank 1: True"),
    "0075": (0, "`not alive.any()` (train.py:17) differs (time 29): rank 0: True"),
}  # fmt: skip

FIXED = (
    "0001", "0002", "0003", "0005", "0007", "0008", "0010", "0011", "0012", "0015", "0016", "0021", "0025", "0051", "0072", "0075",
)  # fmt: skip

# case -> what the ranks that wait say of the one that does not come
NAMED = {
    "0003": (1, "all_gather_into_tensor (train.py:25) differs (time 12): rank 0: not here after 10 s"),
    "0001": (0, "all_reduce (metrics.py:15) differs (time 1): rank 0: [(2,) torch.float32]; rank 1, 2, 3: not here"),
}

NAMED_OFTEN = ("0001",)

OWN_HASHES = frozenset({"0015"})
"""The order of its sets differs by process. Each of its ranks imports torch anew, which takes its time: `make sweep`."""
PROBED_OFTEN = [case for case in PROBED if case not in OWN_HASHES]
FIXED_OFTEN = [case for case in FIXED if case not in OWN_HASHES]
ONE_IN = 8
"""Of those cases are run by `make test`; `make sweep` runs all."""


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    codes: list[int]

    def log(self, rank: int) -> str:
        return (self.folder / f"log_rank_{rank}.txt").read_text("utf-8", "replace")


def world(case: str) -> int:
    return tomllib.loads((CASES / case / "case.toml").read_text())["world"]


def with_patch(offers: tuple[Probe, ...] | tuple[Fix, ...]) -> list[str]:
    return [offer.patch for offer in offers if offer.patch]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Run]:
    """Patched jobs, several at a time: those of one case in eight, or of all in `make sweep`."""
    base = tmp_path_factory.mktemp("jobs")
    probed, fixed = (PROBED, FIXED) if is_swept(request) else (PROBED_OFTEN[::ONE_IN], FIXED_OFTEN[::ONE_IN])
    speaks = {f"{case}-probe": told for case, told in PROBED.items()} | {
        f"{case}-who": told for case, told in NAMED.items()
    }
    wanted = {f"{case}-probe": with_patch(offered(case).probes)[:1] for case in probed}
    wanted |= {f"{case}-fix": with_patch(offered(case).fixes)[:1] for case in fixed}
    wanted |= {
        f"{case}-who": with_patch(offered(case).probes)[1:2] for case in (NAMED if is_swept(request) else NAMED_OFTEN)
    }
    jobs = [
        {
            "folder": str(patched(CASES / name[:4] / "source", patches[0], base / name)),
            "world": world(name[:4]),
            "pg_timeout": PG_TIMEOUT,
            "trains": True,
            "own_hashes": name[:4] in OWN_HASHES,
            "must_end": name.endswith("fix"),
            "ends": [speaks[name][0]] if name in speaks else [],
        }
        for name, patches in wanted.items()
        if patches
    ]
    # Those that wait for ten seconds first, so that the others run beside them.
    jobs.sort(key=lambda job: not (job["folder"].endswith("who") or job["own_hashes"]))
    (base / "jobs.json").write_text(json.dumps(jobs))
    done = run(str(Path(__file__).parent / "remedies" / "ranks.py"), str(base / "jobs.json"))
    assert done.code == 0, done.err
    return {Path(folder).name: Run(Path(folder), codes) for folder, codes in json.loads(done.out).items()}


@for_each("case", PROBED_OFTEN, one_in=ONE_IN)
def test_a_probe_turns_the_hang_into_a_failure_that_names_rank_and_condition(case: str, runs: dict[str, Run]) -> None:
    rank, says = PROBED[case]
    run = runs[f"{case}-probe"]

    assert says in run.log(rank)
    assert run.codes[rank] == 1


@pytest.mark.parametrize(
    "case", [case if case in NAMED_OFTEN else pytest.param(case, marks=pytest.mark.sweep) for case in sorted(NAMED)]
)
def test_ranks_that_wait_at_the_collective_name_those_that_do_not_come(case: str, runs: dict[str, Run]) -> None:
    rank, says = NAMED[case]

    assert says in runs[f"{case}-who"].log(rank)


@for_each("case", FIXED_OFTEN, one_in=ONE_IN)
def test_a_fix_lets_the_job_finish(case: str, runs: dict[str, Run]) -> None:
    run = runs[f"{case}-fix"]

    assert run.codes == [0] * world(case), run.log(run.codes.index(max(run.codes, key=abs)))


@pytest.mark.sweep
@for_each("case", OWN_HASHES)
def test_an_order_that_differs_by_process_is_probed_and_fixed(case: str, runs: dict[str, Run]) -> None:
    rank, says = PROBED[case]

    assert says in runs[f"{case}-probe"].log(rank)
    assert runs[f"{case}-probe"].codes[rank] == 1
    assert runs[f"{case}-fix"].codes == [0] * world(case)
