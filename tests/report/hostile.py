"""Strings that try to get out of the place where a report puts them."""

from dataclasses import replace

import verdicts
from forkpoint.model.incident import Cohort, Divergence, Role
from forkpoint.model.verdict import Coverage, Evidence, Fix, Hypothesis, Probe, Site, Verdict
from forkpoint.model.world import ProcessGroup

STRINGS = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "@everyone @octocat please",
    "https://evil.example/x www.evil.example mailto:me@evil.example",
    "[click](javascript:alert(1)) ![i](http://evil.example/i.png)",
    "a | b | c \\| d",
    "`code` ``` ```` ~~~",
    "\n# heading\n- item\n1. item\n```\n",
    "1. item",
    "--- *** ___",
    "#1 GH-12 owner/repo#3 <!channel> <@U1>",
    "\x1b[2J\x1b]0;title\x07 \u202etxt.exe \u200b\u2066 \ud800 \x00",
    "&lt;b&gt; &#64;octocat",
    "::set-output name=x::y",
    "x" * 1_000_000,
)


def hostile(text: str) -> Verdict:
    """A verdict with this string in every field that input can fill."""
    finding = replace(
        verdicts.FINDING,
        evidence=(Evidence(text, 0, text, text),),
        fixes=(Fix(text, text), Fix(text)),
        probes=(Probe(text, text, f"--- a\n+++ b\n+{text}\n"),),
        next=(text,),
    )
    divergence = replace(
        verdicts.DIVERGENCE,
        group=ProcessGroup(text, text, (0, 1)),
        cohorts=(Cohort((0,), Role.WAITING, text, ((1,),), (text,), None, None, None, text),),
    )
    return replace(
        verdicts.FOUND,
        summary=text,
        divergence=divergence,
        coverage=Coverage(2, 2, 0, 0, (text,)),
        findings=(finding,),
        sites=(Site(text, 3, text, text, f"because {text}", 0), Site(text, 0, text)),
        next=finding.next,
        hypotheses=(_hypothesis(text, divergence), replace(_hypothesis(text, divergence), suspects=(0,), sides=())),
    )


def _hypothesis(text: str, divergence: Divergence) -> Hypothesis:
    return replace(
        verdicts.STALLED,
        says=text,
        decides=text,
        supports=(Evidence(text, 0, text, text),),
        against=(Evidence(text, 1, text, f"not {text}"),),
        lacks=(text, text),
        divergence=divergence,
        repair=text,
        steps=(text, f"then {text}", text),
    )
