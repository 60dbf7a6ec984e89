"""The style for models without tool calls.

What may be called becomes one JSON schema that the endpoint enforces, a call is the text
`{"next": {"call": NAME, "arguments": {...}}}`, and results are told as plain text. `next` is there because several
providers want an object, not a choice, at the top.
"""

import json
from collections.abc import Sequence
from itertools import count

from pydantic_ai.messages import ModelRequestPart, ModelResponse, ModelResponsePart, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition

from forkpoint.agent.model import Answered, Call, Offer
from forkpoint.agent.providers.schema import choice_of
from forkpoint.agent.providers.tool_talk import Talk


class JsonTalk(Talk):
    def __init__(self) -> None:
        self._numbers = count(1)
        """Of calls, as nobody else gives them ids."""

    def instruct(self, instructions: str, offers: Sequence[Offer]) -> str:
        """Servers keep a model to a schema without showing it what the schema says."""
        if not offers:
            return instructions
        ways = "\n".join(f"- {_signature(offer)}: {offer.description}" for offer in offers)
        return f'{instructions}\n\nAnswer {{"next": {{"call": NAME, "arguments": {{...}}}}}} in JSON, to call one of:\n{ways}'

    def offer(self, offers: Sequence[Offer]) -> ModelRequestParameters:
        if not offers:
            return ModelRequestParameters()
        wanted = OutputObjectDefinition(json_schema=choice_of(offers), name="next")
        return ModelRequestParameters(output_mode="native", output_object=wanted)

    def call(self, call: Call) -> ModelResponsePart:
        return TextPart(f'{{"next": {{"call": {json.dumps(call.name)}, "arguments": {call.arguments}}}}}')

    def answer(self, answered: Answered) -> ModelRequestPart:
        return UserPromptPart(f"Result of {answered.call.name}:\n{answered.text}")

    def hear(self, response: ModelResponse) -> tuple[str, tuple[Call, ...]]:
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        call = _call_in(text, f"json_{next(self._numbers)}")
        return (text, ()) if call is None else ("", (call,))


def _signature(offer: Offer) -> str:
    return f"{offer.name}({', '.join(offer.schema.get('properties', {}))})"


def _call_in(text: str, number: str) -> Call | None:
    """None: it wrote something else, and that is its text."""
    try:
        match json.loads(text):
            case {"next": {"call": str(name), "arguments": arguments}}:
                return Call(number, name, json.dumps(arguments))
            case _:
                return None
    except (ValueError, RecursionError):
        return None
