"""Clients and servers as they are installed: MLflow's server, W&B offline, Prometheus, Adaptive Cards, Grafana's SDK.

`make sweep` installs what can be had (`.[test-sinks]`, apt: prometheus, npm: adaptivecards); what cannot is skipped with the reason.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import verdicts
from forkpoint.live.children import NotifySettings, Sending
from forkpoint.sinks.notice import Notice
from forkpoint.sinks.services.posted import teams_message
from forkpoint.sinks.sink import SinkOutcome
from sinks.stand_ins import notice_of, unused_address
from sinks.test_metric_files import DASHBOARD, RULES, exported, expressions

pytestmark = pytest.mark.sweep
PATIENCE_S = 300.0
NOTICE = notice_of(seen=("the same fork was seen once before",))


def tell(notice: Notice, *names: str, limit_s: float = 120.0) -> tuple[SinkOutcome, ...]:
    """From a process of its own, as the commands do it."""
    sending = Sending(notice, NotifySettings(names, limit_s))
    try:
        return sending.wait()
    finally:
        sending.end()


def ask(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=60
    ) as answer:
        return json.load(answer)


def wait_for(what: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if found := what():
                return found
        except OSError:
            pass
        assert time.monotonic() < until
        time.sleep(0.2)


@contextmanager
def running(command: list[str], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def test_a_run_of_a_real_mlflow_server_gets_its_tags_and_faults_are_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="pip install 'forkpoint[test-sinks]'")
    address = unused_address()
    host, _, port = address.partition(":")
    words = [
        "server",
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/m.db",
        "--host",
        host,
        "--port",
        port,
        "--workers",
        "1",
    ]
    api = f"http://{address}/api/2.0/mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{address}")
    with running([sys.executable, "-m", "mlflow", *words], tmp_path):
        wait_for(lambda: urllib.request.urlopen(f"http://{address}/health", timeout=60).status == 200)
        experiment = ask(f"{api}/experiments/create", {"name": "pretrain"})["experiment_id"]
        run = ask(f"{api}/runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"]
        monkeypatch.setenv("MLFLOW_RUN_ID", run)
        assert tell(NOTICE, "mlflow") == (SinkOutcome("mlflow"),)
        tags = {one["key"]: one["value"] for one in ask(f"{api}/runs/get?run_id={run}")["run"]["data"]["tags"]}
        assert tell(notice_of(verdicts.INCONCLUSIVE), "mlflow") == (SinkOutcome("mlflow"),)
        doubted = {one["key"]: one["value"] for one in ask(f"{api}/runs/get?run_id={run}")["run"]["data"]["tags"]}
        monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
        (no_run,) = tell(NOTICE, "mlflow")
    (gone,) = tell(NOTICE, "mlflow")

    assert tags["forkpoint.cause"] == verdicts.FOUND.cause
    assert tags["forkpoint.headline"] == NOTICE.headline
    assert tags["forkpoint.seen"] == "the same fork was seen once before"
    assert (doubted["forkpoint.decided"], doubted["forkpoint.suspects"]) == ("no", "none singled out")
    assert "not found" in str(no_run.problem)
    assert gone.problem


def records(file: Path) -> Iterator[bytes]:
    """Of W&B's log: seven bytes, then blocks of 32 kB with LevelDB's chunks."""
    data, at, held = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 0x8000 - at % 0x8000
        if left < 7:
            at += left
            continue
        _crc, length, kind = struct.unpack_from("<IHB", data, at)
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield held
            held = b""


def test_wandb_writes_the_tags_of_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="pip install 'forkpoint[test-sinks]'")
    settings = {"WANDB_MODE": "offline", "WANDB_RUN_ID": "pretrain1", "WANDB_PROJECT": "p", "WANDB_DIR": str(tmp_path)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert tell(NOTICE, "wandb") == (SinkOutcome("wandb"),)
    (file,) = tmp_path.rglob("*.wandb")
    read = [pb.Record.FromString(one) for one in records(file)]
    runs = [one.run for one in read if one.HasField("run")]
    summary = {key.key or ".".join(key.nested_key): key.value_json for one in read for key in one.summary.update}
    assert {run.run_id for run in runs} == {"pretrain1"}
    assert set(runs[-1].tags) == {"forkpoint", f"forkpoint:{verdicts.FOUND.cause}"}
    assert json.loads(summary["forkpoint.cause"]) == verdicts.FOUND.cause


@contextmanager
def scraped(text: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is missing: apt install prometheus")
def test_a_real_prometheus_loads_the_rules_and_answers_all_that_the_dashboard_asks(tmp_path: Path) -> None:
    address = unused_address()
    with scraped(exported()) as target:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "forkpoint", "static_configs": [{"targets": [target]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={address}"]
        with running([*command, f"--storage.tsdb.path={tmp_path}/data"], tmp_path):
            query = f"http://{address}/api/v1/query?query="
            wait_for(lambda: ask(f"{query}forkpoint_alarms_total")["data"]["result"])
            empty = [expr for expr in expressions() if not answer_of(query, expr)]
            rules = wait_for(lambda: evaluated(ask(f"http://{address}/api/v1/rules")["data"]["groups"]))

    assert empty == [
        one for one in expressions() if one.startswith(("changes(", "sum by (instance, source) (increase"))
    ]
    assert {rule["health"] for rule in rules} == {"ok"}
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert firing == {"ForkpointIncident", "ForkpointRunFailed", "ForkpointRunNamesNode"}


def answer_of(query: str, expr: str) -> list[object]:
    """As Grafana fills it in, with all jobs and instances chosen."""
    filled = expr.replace("$job", ".*").replace("$instance", ".*").replace("$__range", "1h")
    answer = ask(query + urllib.request.quote(filled))
    assert answer["status"] == "success", expr
    return answer["data"]["result"]


def evaluated(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rules, once each was asked for after the first scrape."""
    rules = [rule for group in groups for rule in group["rules"]]
    first = next(rule for rule in rules if rule["name"] == "ForkpointIncident")
    return rules if first["state"] == "firing" and all(rule["health"] != "unknown" for rule in rules) else []


def test_the_library_of_adaptive_cards_takes_the_card_without_complaint(tmp_path: Path) -> None:
    if not shutil.which("npm"):
        pytest.skip("node and npm are missing: apt install npm")
    installed = subprocess.run(
        ["npm", "install", "--silent", "--prefix", str(tmp_path), "adaptivecards@3.0.6"],
        capture_output=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip("npm cannot install adaptivecards")
    script = """
    const { AdaptiveCard, SerializationContext } = require("adaptivecards/dist/adaptivecards.js");
    for (const given of JSON.parse(require("fs").readFileSync(0))) {
        const card = new AdaptiveCard(), context = new SerializationContext();
        card.parse(given, context);
        const events = Array.from({length: context.eventCount}, (_, i) => context.getEventAt(i).message);
        console.log(JSON.stringify({events, items: card.getItemCount(), valid: card.validateProperties().validationEvents.length}));
    }"""
    cards = [
        teams_message(notice_of(verdict))["attachments"][0]["content"]  # type: ignore[index]
        for verdict in (verdicts.FOUND, verdicts.INCONCLUSIVE, verdicts.crowded(64))
    ]
    broken = {**cards[0], "body": [{"type": "RichTextBlok", "inlines": []}]}
    done = subprocess.run(
        ["node", "-e", script],
        cwd=tmp_path,
        input=json.dumps([*cards, broken]).encode(),
        env=os.environ | {"NODE_PATH": str(tmp_path / "node_modules")},
        capture_output=True,
        check=True,
    )

    *good, bad = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["events"], one["valid"], one["items"] > 2) for one in good] == [([], 0, True)] * 3
    assert bad["events"]


def test_grafanas_own_sdk_reads_the_dashboard(tmp_path: Path) -> None:
    models = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason="pip install 'forkpoint[test-sinks]'"
    )
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    plugins.register_default_plugins()
    given = json.loads(DASHBOARD.read_text())
    dashboard = models.Dashboard.from_json(given)

    queries = [target for panel in dashboard.panels for target in getattr(panel, "targets", None) or []]
    assert len(dashboard.panels) == len(given["panels"])
    assert {type(query).__module__ for query in queries} == {"grafana_foundation_sdk.models.prometheus"}
    assert [query.expr for query in queries] == expressions()[:-1]
