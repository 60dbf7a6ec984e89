"""One controller for all ranks: every rank gets the same calls in the same order, decisions are taken in one place, and
what goes wrong comes back as a verdict. Runs on Monarch (https://github.com/meta-pytorch/monarch).
"""

from importlib.util import find_spec

if find_spec("monarch") is None:
    raise ImportError("forkpoint.controller runs on Monarch: pip install 'forkpoint[monarch]'")

from forkpoint.controller.job import Controller
from forkpoint.controller.verdicts import StepFailed

__all__ = ["Controller", "StepFailed"]
