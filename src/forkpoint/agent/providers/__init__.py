"""Models behind an endpoint: OpenAI, Anthropic, and all servers with OpenAI's chat API.

There is no default endpoint. The user names a provider, and only that provider's host, or the given endpoint, is contacted:
no proxies from the environment, no redirects, no telemetry. Keys come from the environment and appear in no message. Needs
the extra `agent`; a provider's client is imported on first use.
"""

import os
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from forkpoint.agent.model import Model
from forkpoint.errors import UsageError

# ---------------------------------------------------------------------------------------------------------------------
# The model, its endpoint and its key, parsed from options. Contacts nothing.


class Provider(StrEnum):
    OPENAI = "openai"
    """The responses API."""
    OPENAI_CHAT = "openai-chat"
    """The older chat API, for models or gateways that have only that."""
    ANTHROPIC = "anthropic"
    OPENAI_COMPATIBLE = "openai-compatible"
    """vLLM, Ollama, llama.cpp: the chat API at a given endpoint."""


class Style(StrEnum):
    """How a model expresses calls."""

    TOOLS = "tools"
    """By tool calls."""
    JSON = "json"
    """As text that follows a JSON schema, for models or servers without tool calls."""


@dataclass(frozen=True, slots=True)
class Home:
    """A provider's own endpoint, and the usual variable for its key."""

    url: str
    key_variable: str


_HOMES: Final = {
    Provider.OPENAI: Home("https://api.openai.com/v1", "OPENAI_API_KEY"),
    Provider.OPENAI_CHAT: Home("https://api.openai.com/v1", "OPENAI_API_KEY"),
    Provider.ANTHROPIC: Home("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
}


_SHORTEST_KEY: Final = 8


@dataclass(frozen=True, slots=True)
class Address:
    provider: Provider
    model: str
    url: str
    key: str | None = field(repr=False)
    """None: requests have no key."""
    key_variable: str | None

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def scrub(self, text: str) -> str:
        """Removes the key. Short values, such as `EMPTY` for a server that needs no key, are not secrets."""
        return text.replace(self.key, "[key]") if self.key and len(self.key) >= _SHORTEST_KEY else text


def parse_address(spec: str, endpoint: str | None, key_variable: str | None) -> Address:
    """A provider's own key goes only to that provider. Any other endpoint gets a key only if `key_variable` is given."""
    name, _, model = spec.partition(":")
    if name not in list(Provider) or not model:
        raise UsageError(f"--model {spec}: write PROVIDER:NAME, where PROVIDER is one of {', '.join(Provider)}")
    provider = Provider(name)
    home = _HOMES.get(provider)
    if endpoint is not None:
        url = _checked(endpoint)
    elif home is not None:
        url, key_variable = home.url, key_variable or home.key_variable
    else:
        raise UsageError(f"--model {spec}: give its endpoint, as in --endpoint http://127.0.0.1:8000/v1")
    return Address(provider, model, url, _key_in(key_variable) if key_variable else None, key_variable)


def _checked(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise UsageError("--endpoint is not a URL: write one like http://127.0.0.1:8000/v1") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("--endpoint contains more than host and path: put a key in a variable (--key-variable NAME)")
    if not usable or not endpoint.isprintable() or " " in endpoint:
        raise UsageError(f"--endpoint {endpoint}: write http:// or https://, a host and a path")
    return endpoint.rstrip("/")


def _key_in(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"{variable} is not set: set it to the key for the model, or name another variable (--key-variable NAME)"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"{variable} is not a valid key: it contains spaces, line ends or non-ASCII characters")
    return key


def connect(spec: str, endpoint: str | None, key_variable: str | None, style: Style) -> Model:
    """`spec` is `PROVIDER:NAME`. Sends nothing yet."""
    address = parse_address(spec, endpoint, key_variable)
    client = "anthropic" if address.provider is Provider.ANTHROPIC else "openai"
    missing = [package for package in ("pydantic_ai", client) if find_spec(package) is None]
    if missing:
        raise UsageError(f"--model {spec} needs {' and '.join(missing)}: pip install 'forkpoint[agent]'")
    from forkpoint.agent.providers.model import ProviderModel  # noqa: PLC0415 - takes seconds to import

    return ProviderModel(address, style)
