"""Evidence behind s3://, read and copied by the real commands through s3fs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.machines import hung_job
from real.object_store import ObjectStore, running_moto, running_swift, why_no_moto, why_no_swift

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

RUN = "bucket/run7"


@pytest.fixture(scope="module", params=["swift", "moto"])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    why, running = {"swift": (why_no_swift, running_swift), "moto": (why_no_moto, running_moto)}[request.param]
    if told := why():
        pytest.skip(told)
    with running() as found:
        job = hung_job(4)
        files = {f"run7/node{rank // 2}/nccl_trace_rank_{rank}": job.dump(rank) for rank in range(4)}
        found.put("bucket", {**files, "run7/checkpoint.pt": b"\x80\x02" + bytes(9000), "run8/nothing.bin": bytes(10)})
        yield found


def forkpoint(store: ObjectStore, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forkpoint", *argv],
        env={**os.environ, **store.environ, **environ}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def test_dumps_in_a_bucket_give_the_verdict_and_summarise_reads_them_as_well(
    store: ObjectStore, tmp_path: Path
) -> None:
    said = forkpoint(store, "diagnose", f"s3://{RUN}", "--json")
    summary = forkpoint(store, "summarise", f"s3://{RUN}", "-o", str(tmp_path / "run.fps"))
    again = forkpoint(store, "diagnose", str(tmp_path / "run.fps"), "--json")

    assert said.returncode == 1, said.stderr
    assert json.loads(said.stdout)["suspects"] == [3]
    assert summary.returncode == 0, summary.stderr
    assert json.loads(again.stdout)["suspects"] == [3]


def test_evidence_is_copied_out_of_a_bucket_and_the_rest_stays(store: ObjectStore, tmp_path: Path) -> None:
    out = tmp_path / "copied"

    said = forkpoint(store, "collect", f"s3://{RUN}", "-o", str(out), "--json")

    manifest = json.loads(said.stdout)
    assert (said.returncode, manifest["notes"]) == (0, [])
    job = hung_job(4)
    copied = {path.name: path.read_bytes() for path in out.rglob("*rank_*")}
    assert copied == {f"nccl_trace_rank_{rank}": job.dump(rank) for rank in range(4)}
    assert all(file["modified"] for file in manifest["files"])


def test_a_bucket_that_is_not_there_is_told_beside_what_is(store: ObjectStore, tmp_path: Path) -> None:
    diagnosed = forkpoint(store, "diagnose", "s3://no-such-bucket/run7")
    copied = forkpoint(store, "collect", "s3://no-such-bucket/run7", f"s3://{RUN}", "-o", str(tmp_path / "some"))

    assert diagnosed.returncode == 2
    assert "s3://no-such-bucket/run7: " in diagnosed.stderr
    assert copied.returncode == 0, copied.stderr
    assert "gathered  4 dump" in copied.stdout
    assert "s3://no-such-bucket/run7: " in copied.stderr


def test_a_secret_that_is_wrong_is_told_with_the_next_step_and_not_printed(store: ObjectStore, tmp_path: Path) -> None:
    if store.node is None:
        pytest.skip("moto checks no signatures")
    wrong = {"AWS_SECRET_ACCESS_KEY": "hunter2-wrong"}

    diagnosed = forkpoint(store, "diagnose", f"s3://{RUN}", **wrong)
    copied = forkpoint(store, "collect", f"s3://{RUN}", "-o", str(tmp_path / "none"), **wrong)

    assert (diagnosed.returncode, copied.returncode) == (2, 3)
    for said in (diagnosed.stderr, copied.stderr):
        assert f"s3://{RUN}: " in said
        assert "credentials" in said
        assert "hunter2" not in said
        assert "Traceback" not in said


def test_a_store_that_is_down_or_frozen_is_given_up_and_told(store: ObjectStore, tmp_path: Path) -> None:
    down = forkpoint(store, "diagnose", f"s3://{RUN}", AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1")

    assert down.returncode == 2
    assert f"s3://{RUN}: " in down.stderr
    assert "Traceback" not in down.stderr
    if store.node is None:
        return
    store.node.freeze()
    try:
        frozen = forkpoint(
            store, "collect", f"s3://{RUN}", "-o", str(tmp_path / "frozen"), "--seconds", "20", AWS_MAX_ATTEMPTS="1"
        )
    finally:
        store.node.thaw()
    assert frozen.returncode == 3
    assert f"s3://{RUN}: " in frozen.stderr
