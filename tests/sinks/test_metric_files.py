"""The alert rules and the dashboard under examples/ ask for metrics that exist, and for all of them."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

import verdicts
from forkpoint.doctor import text as doctor_metrics
from forkpoint.doctor.report import DoctorReport, Judged, bad
from forkpoint.live import metrics as live_metrics
from forkpoint.live.children import Decision, Diagnosed
from forkpoint.live.metrics import WatchMetrics
from forkpoint.live.run.attempt import Attempt
from forkpoint.live.run.job import JobEnd
from forkpoint.live.watch.rule import Sight, WatchNote, WatchState

EXAMPLES = Path(__file__).parents[2] / "examples"
RULES = EXAMPLES / "prometheus" / "forkpoint-alerts.yaml"
DASHBOARD = EXAMPLES / "grafana" / "forkpoint.json"
DOCTOR = DoctorReport("node-7", 1.0, None, None, (Judged("xids", "Xids", bad("Xid 79", "look")),), ())
_NAME = re.compile(r"\bforkpoint_[a-z_]+\b")


def exported() -> str:
    """All that can be scraped, with a sample each."""
    watched = WatchMetrics()
    sight = Sight("2026-11-15T01:18:27Z", WatchState.FOUND, "x", 8, 8, 3.0, verdict=verdicts.FOUND, is_alarm=True)
    watched.update(replace(sight, notes=(WatchNote("ras", "no answer"),)))
    found = Diagnosed("transport", "replace-node", (2,), 0.9, "", "", "{}")
    attempts = [Attempt(0, Path("/x"), JobEnd(1, None, 12.0), Decision(76, ""), found)]
    return "".join(
        [
            generate_latest(watched.registry).decode(),
            live_metrics.render_metrics(attempts, Decision(76, "")),
            doctor_metrics.render_metrics(DOCTOR),
        ]
    )


def metric_names() -> set[str]:
    lines = [line for line in exported().splitlines() if not line.startswith("#")]
    return {name for line in lines if not (name := line.partition(" ")[0].partition("{")[0]).endswith("_created")}


def expressions() -> list[str]:
    """All that the dashboard asks Prometheus."""
    dashboard = json.loads(DASHBOARD.read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [*targets, *(one["expr"] for one in dashboard["annotations"]["list"])]


def test_rules_and_dashboard_ask_for_metrics_that_exist_and_the_dashboard_for_all() -> None:
    names = metric_names()
    text = "".join(line for line in RULES.read_text().splitlines(keepends=True) if not line.lstrip().startswith("#"))

    assert set(_NAME.findall(text)) <= names
    shown = {name for expression in expressions() for name in _NAME.findall(expression)}
    assert shown == names


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """`make sweep` reads it with Grafana's own SDK; here: what a mistake breaks first."""
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} == {"row", "stat", "state-timeline", "table", "timeseries"}
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))  # no panel lies on another
    assert max(x for x, _ in cells) < 24
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", DASHBOARD.read_text()))
    assert used <= variables | {"__range", "__all", ""}


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt install prometheus")
def test_prometheus_takes_the_rules_and_they_fire_as_their_tests_say() -> None:
    for words in (["check", "rules", RULES.name], ["test", "rules", "forkpoint-alerts-test.yaml"]):
        done = subprocess.run(["promtool", *words], cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
