"""A report -> a file for node_exporter's textfile collector. Needs the extra `watch`."""

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from forkpoint.doctor.report import CheckStatus, DoctorReport


def render_metrics(report: DoctorReport) -> str:
    """One series per check and status, 1 for the current status: alerts use `status="bad"`, and a skipped check is not
    mistaken for one that passed.
    """
    registry = CollectorRegistry()
    checks = Gauge(
        "forkpoint_doctor_check", "1 for the current status of the check", ["check", "status"], registry=registry
    )
    for judged in report.results:
        for status in CheckStatus:
            checks.labels(judged.check, status).set(judged.result.status is status)
    for failure in report.failures:
        checks.labels(failure.check, "unknown").set(1)
    Gauge("forkpoint_doctor_time_seconds", "When the checks ran", registry=registry).set(report.time)
    Gauge("forkpoint_doctor_exit_code", "0 nothing bad, 1 bad, 2 unknown", registry=registry).set(report.exit_code)
    return generate_latest(registry).decode()
