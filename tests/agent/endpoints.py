"""One question to every kind of endpoint.

The clients are imported here, where tests are collected, so that forks share them; forkpoint itself imports one when it is asked for.
"""

import anthropic.resources  # noqa: F401 - as said
import openai.resources  # noqa: F401 - as said
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai  # noqa: F401 - as said
import pytest

from forkpoint.agent.model import Offer, Said
from forkpoint.agent.providers import Style, connect

MODELS = ["openai:gpt-5", "openai-chat:gpt-5", "openai-compatible:local", "anthropic:claude-sonnet-5"]
WIRES = [
    *(m for m in MODELS if m != "openai-compatible:local"),
    pytest.param("openai-compatible:local", marks=pytest.mark.sweep),
]
"""Each kind once; the second that speaks the wire of `openai-chat` in `make sweep`."""
KEY = "sk-0123456789"
LONG = 600.0
"""Seconds: no test waits for it."""


def counting(kind: str) -> dict:
    """A schema with a definition of its own, and kinds told apart, as pydantic writes it."""
    definition = {
        "type": "object",
        "properties": {"kind": {"const": kind, "type": "string"}, "n": {"type": "integer"}},
        "required": ["kind", "n"],
        "additionalProperties": False,
    }
    claims = {"oneOf": [{"$ref": "#/$defs/Claim"}], "discriminator": {"propertyName": "kind"}}
    return {
        "type": "object",
        "properties": {"claim": claims},
        "required": ["claim"],
        "additionalProperties": False,
        "$defs": {"Claim": definition},
    }


ASKED = (Said("What happened?"),)
OFFERS = (Offer("progress", "How far each rank got.", counting("a")), Offer("slots", "One slot.", counting("b")))


def url_for(server, spec):
    return server.anthropic_url if spec.startswith("anthropic") else server.url


def ask(server, spec, style=Style.TOOLS, messages=ASKED, within_s=LONG, hear=lambda _: None):
    model = connect(spec, url_for(server, spec), "MINE", style)
    return model.ask("Name no rank without evidence.", messages, OFFERS, within_s, hear)
