"""What other programs get: the attribution service over real HTTP, metrics, printed commands."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forkpoint.live.children import DO_NOT_RETRY, RETRY_ELSEWHERE, Decision, Diagnosed
from forkpoint.live.metrics import render_metrics
from forkpoint.live.run.attempt import Attempt, commands_for
from forkpoint.live.run.job import JobEnd
from looping import for_each
from small_jobs import SmallJob


@dataclass(frozen=True)
class Service:
    """Asked as ft_launcher asks: POST when a cycle begins and when it has failed, then GET."""

    address: str
    folder: Path

    def post(self, log: Path | str, intent: str) -> tuple[int, dict]:
        body = json.dumps({"log_path": str(log), "user": "me", "analysis_intent": intent}).encode()
        return self._ask(urllib.request.Request(f"{self.address}/logs", body, {"Content-Type": "application/json"}))

    def get(self, log: Path | str, wait: str = "true") -> tuple[int, dict]:
        return self._ask(urllib.request.Request(f"{self.address}/logs?log_path={quote(str(log))}&wait={wait}"))

    def cycle(self, text: str, *, number: int) -> Path:
        log = self.folder / "logs" / f"job_cycle{number}.log"
        log.write_text(text)
        return log

    @staticmethod
    def _ask(request: urllib.request.Request) -> tuple[int, dict]:
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("attribution")
    for name in ("logs", "dumps", "secret"):
        (folder / name).mkdir()
    command = [sys.executable, "-m", "forkpoint", "attribution", "--root", "logs", "--dumps", "dumps"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Service(process.stdout.readline().strip(), folder)
    finally:
        process.terminate()
        process.communicate(timeout=600)


def write_dumps(folder: Path) -> None:
    job = SmallJob(4)
    for _ in range(5):
        job.op()
    job.op((0, 1, 3), done=False, line=40)
    job.op((2,), name="broadcast", done=False, line=50)
    for rank in range(4):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))


def test_a_cycle_whose_code_would_fail_again_is_to_be_stopped(service: Service) -> None:
    log = service.cycle("a cycle begins\n", number=0)
    assert service.post(log, "progressive")[0] == 200
    assert service.get(log, wait="false")[1]["status"] == "pending"

    write_dumps(service.folder / "dumps")
    status, accepted = service.post(log, "terminal")
    _, answer = service.get(log)

    assert (status, accepted["submitted"]) == (200, True)
    assert answer["status"] == "completed"
    assert answer["recommendation"]["action"] == "STOP"
    assert answer["result"]["verdict"]["suspects"] == [2]


def test_a_cycle_that_nobody_understands_stops_nothing_and_old_dumps_are_not_its_own(service: Service) -> None:
    write_dumps(service.folder / "dumps")
    log = service.cycle("it ended\n", number=1)
    service.post(log, "terminal")

    assert service.get(log)[1]["recommendation"]["action"] == "UNKNOWN"


def test_only_files_below_the_root_are_read(service: Service) -> None:
    secret = service.folder / "secret" / "key.log"
    secret.write_text("a secret\n")
    link = service.folder / "logs" / "link.log"
    link.symlink_to(secret)

    assert service.post(secret, "terminal")[0] == 403
    assert service.post(link, "terminal")[0] == 403
    assert service.post(service.folder / "logs" / ".." / "secret" / "key.log", "terminal")[0] == 403


@for_each(
    ("log", "intent", "status"),
    [("logs/job.log", "terminal", 400), ("", "terminal", 400), ("job_cycle9.log", "terminal", 404)],
)
def test_what_is_no_log_is_refused(service: Service, log: str, intent: str, status: int) -> None:
    given = service.folder / "logs" / log if log.endswith("9.log") else log

    assert service.post(given, intent)[0] == status


def test_an_intent_that_does_not_exist_is_refused(service: Service) -> None:
    assert service.post(service.cycle("x\n", number=2), "guess")[0] == 400


def test_without_the_token_nothing_is_answered(service: Service) -> None:
    stranger = replace(service, address=f"{service.address.rpartition('/')[0]}/guess")
    log = service.cycle("x\n", number=3)

    assert stranger.post(log, "terminal")[0] == 403
    assert stranger.get(log)[0] == 403


def test_a_log_that_was_never_announced_is_not_known(service: Service) -> None:
    assert service.get(service.cycle("x\n", number=4))[0] == 404


# ------------------------------------------------------------------------------------------------- metrics and commands


FOUND = Diagnosed("rank-lost", "replace-node", (1, 2), 0.85, "Ranks 1-2 are lost.", "lost", "{}")


def test_metrics_are_few_and_readable_by_prometheus() -> None:
    attempts = [Attempt(n, Path(), JobEnd(1, None, 2.5), Decision(76, "lost"), FOUND) for n in range(2)]

    text = render_metrics(attempts, Decision(76, "lost"))
    samples = {s.name: (s.labels, s.value) for family in text_string_to_metric_families(text) for s in family.samples}

    assert samples["forkpoint_run_exit_code"] == ({}, 76)
    assert samples["forkpoint_run_attempts"] == ({}, 2)
    assert samples["forkpoint_run_seconds"] == ({}, 5)
    assert samples["forkpoint_run_verdict"] == ({"cause": "rank-lost", "action": "replace-node"}, 0.85)


def test_commands_that_change_a_node_are_in_the_words_of_the_scheduler() -> None:
    decision = Decision(RETRY_ELSEWHERE, "why", ("node-a", "node-b"))

    slurm = commands_for(decision, {"SLURM_JOB_ID": "77"})
    assert slurm[0].startswith("sbatch --exclude=node-a,node-b ")
    assert 'scontrol update nodename=node-a,node-b state=drain reason="forkpoint, job 77"' in slurm[1]
    assert commands_for(decision, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})[0].startswith("kubectl cordon node-a node-b")
    assert commands_for(decision, {}) == ()
    assert commands_for(Decision(DO_NOT_RETRY, "why"), {"SLURM_JOB_ID": "77"}) == ()


@for_each("name", ["node; rm -rf", "$(id)", "-all", "a b", "node\nx", ""])
def test_a_name_that_is_no_host_name_makes_no_command(name: str) -> None:
    assert commands_for(Decision(RETRY_ELSEWHERE, "why", (name,)), {"SLURM_JOB_ID": "77"}) == ()
