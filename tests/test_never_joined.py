"""Launchers that did not all meet, by what they print. A rendezvous that fails later has another cause."""

from pathlib import Path

import forkpoint
from forkpoint.model.verdict import Cause, Verdict

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
