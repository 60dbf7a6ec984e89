"""Rewrite the golden verdicts and headlines of all cases: `make accept`. Read the diff before you keep it."""

import json
import os

import forkpoint
from cases import CASES, ROOT, load_cases, verdict_of
from forkpoint.model.verdict import Verdict
from forkpoint.report.json_report import render_json


def render_expected(verdict: Verdict) -> str:
    """The verdict as JSON, with paths as seen from the repository's root."""
    return render_json(verdict).replace(f"{ROOT}{os.sep}", "")


HEADLINES = CASES / "headlines.json"
"""By case: the headline where the program that ran is given, too."""


def render_headlines() -> str:
    told = {case.number: verdict_of(case.number, source=True).headline for case in load_cases()}
    return json.dumps(told, indent=1) + "\n"


def main() -> None:
    for case in load_cases():
        path = CASES / case.number / "expected.json"
        text = render_expected(forkpoint.diagnose(forkpoint.read([str(case.capture)])))
        if not path.exists() or json.loads(path.read_text()) != json.loads(text):
            print(f"rewritten: {path.relative_to(ROOT)}")
            path.write_text(json.dumps(json.loads(text), indent=1) + "\n")
    HEADLINES.write_text(render_headlines())


if __name__ == "__main__":
    main()
