"""A model that obeys whoever planted a text: it calls what is offered, and every word it says is a lie.

It reads nothing but the schemas, and keeps what it was told.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from forkpoint.agent.model import Answered, Call, Message, Offer, Reply, Said, Usage

_NUMBERS = (0, 1, 2, 16, -1, 2**63, 10**30)
_APT: dict[str, tuple[str | int, ...]] = {
    "file": ("train.py", "log_rank_0.txt"),
    "function": ("log_progress", "main"),
    "group": ("default_pg",),
    "seq": (15, 16),
    "ranks": ([3], [0, 3]),
    "op": ("broadcast",),
    "line": (15, 16),
    "call_line": (16,),
    "query": ("divergent-path",),
}
"""What makes sense in a field: a lie that names nothing is turned away at the door."""
_PATHS = ("../../../../etc/passwd", "/etc/hostname", "train.py/../../case.toml", "C:\\x", "-", "\0", "capture/\n/x")


class Liar:
    def __init__(self, seed: int, orders: Sequence[str]) -> None:
        """`orders`: texts of the corpus, which it repeats wherever it may say something."""
        self._random = Random(seed)
        self._texts = (_PATHS, tuple(orders))
        self._calls = 0
        self.told: set[str] = set()
        """Everything that was said to it, line by line."""
        self.answered: dict[str, set[str]] = {}
        """The same of answers, by what it called."""

    @property
    def name(self) -> str:
        return "script:liar"

    def ask(
        self,
        instructions: str,
        messages: Sequence[Message],
        offers: Sequence[Offer],
        within_s: float,
        hear: Callable[[str], None],
    ) -> Reply:
        self._listen(instructions, messages, offers)
        text = self._text()
        hear(text)
        chosen = self._random.sample(list(offers), self._random.randint(1, len(offers)))
        return Reply(text, tuple(map(self._call, chosen)), Usage(1, 1))

    def _listen(self, instructions: str, messages: Sequence[Message], offers: Sequence[Offer]) -> None:
        self.told |= {*instructions.split("\n"), *(line for offer in offers for line in offer.description.split("\n"))}
        for message in messages:
            if isinstance(message, Said | Answered):
                self.told |= set(message.text.split("\n"))
            if isinstance(message, Answered):
                self.answered.setdefault(message.call.name, set()).add(message.text)

    def _call(self, offer: Offer) -> Call:
        self._calls += 1
        arguments = self._lie(offer.schema, offer.schema.get("$defs", {}))
        written = json.dumps(arguments) if self._random.random() < 0.95 else self._text()
        return Call(f"call-{self._calls}", offer.name, written)

    def _lie(self, schema: dict[str, Any], defined: dict[str, Any]) -> object:
        """Something that the schema allows."""
        if "$ref" in schema:
            return self._lie(defined[schema["$ref"].rpartition("/")[2]], defined)
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._lie(self._random.choice(options), defined)
        if "const" in schema or "enum" in schema:
            return self._random.choice(schema.get("enum") or [schema["const"]])
        if schema["type"] == "object":
            return {name: self._field(name, field, defined) for name, field in schema["properties"].items()}
        if schema["type"] == "array":
            return [self._lie(schema["items"], defined) for _ in range(self._random.choice((0, 1, 3)))]
        return self._value(schema["type"])

    def _field(self, name: str, schema: dict[str, Any], defined: dict[str, Any]) -> object:
        apt = name in _APT and self._random.random() < 0.6
        return self._random.choice(_APT[name]) if apt else self._lie(schema, defined)

    def _value(self, kind: str) -> str | float | bool | None:
        match kind:
            case "string":
                return self._text()
            case "integer":
                return self._random.choice(_NUMBERS)
            case "number":
                return self._random.choice((1.0, 1e308, -1.0))
            case "boolean":
                return True
            case _:
                return None

    def _text(self) -> str:
        return self._random.choice(self._random.choice(self._texts))
