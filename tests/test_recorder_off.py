"""Dumps without entries: the recorder was off, and the variables that switch it on depend on the release."""

from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Cause
from ingest.encode import encode
from ingest.samples import dump
from looping import for_each


@for_each(
    ("schema", "expected", "not_expected"),
    [
        ("2.10", "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000", None),
        ("2.9", "TORCH_FR_BUFFER_SIZE=2000", None),
        ("2.4", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "TORCH_FR_"),
        ("1.4", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "TORCH_FR_"),
    ],
)
def test_empty_dumps_say_that_the_recorder_was_off_and_how_to_switch_it_on(
    tmp_path: Path, schema: str, expected: str, not_expected: str | None
) -> None:
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(encode(dump([], version=schema, pg_status={})))

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.cause is Cause.INCONCLUSIVE
    assert "recorder was off" in verdict.summary
    assert any(expected in line for line in verdict.next)
    assert not_expected is None or not any(not_expected in line for line in verdict.next)
    assert not any("bytes" in line and "not bytes" not in line for line in verdict.next)
