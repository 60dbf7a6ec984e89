"""What a call raises that did not end well on every rank."""

from forkpoint.errors import ForkpointError
from forkpoint.model.verdict import Verdict
from forkpoint.report.verdict_line import render_line


class StepFailed(ForkpointError):
    """The ranks are stopped when this is raised."""

    def __init__(self, verdict: Verdict, call: int, method: str, folder: str) -> None:
        super().__init__(f"{verdict.summary}\n{render_line(verdict)}\nEvidence: {folder}")
        self.verdict = verdict
        self.call = call
        """Calls are numbered from 1; 0 is the start."""
        self.method = method
        self.folder = folder
        """Dumps, stacks and tracebacks of the ranks, and what the controller saw. `forkpoint diagnose` reads it too."""
