"""Models behind an endpoint: OpenAI, Anthropic, and all servers with OpenAI's chat API.

There is no default endpoint. The user names a provider, and only that provider's host, or the given endpoint, is contacted:
no proxies from the environment, no redirects, no telemetry. Keys come from the environment and appear in no message. Needs
the extra `agent`; a provider's client is imported on first use.
"""

from importlib.util import find_spec

from forkpoint.agent.model import Model
from forkpoint.agent.providers.address import Provider, Style, parse_address
from forkpoint.errors import UsageError

__all__ = ["Provider", "Style", "connect"]


def connect(spec: str, endpoint: str | None, key_variable: str | None, style: Style) -> Model:
    """`spec` is `PROVIDER:NAME`. Sends nothing yet."""
    address = parse_address(spec, endpoint, key_variable)
    client = "anthropic" if address.provider is Provider.ANTHROPIC else "openai"
    missing = [package for package in ("pydantic_ai", client) if find_spec(package) is None]
    if missing:
        raise UsageError(f"--model {spec} needs {' and '.join(missing)}: pip install 'forkpoint[agent]'")
    from forkpoint.agent.providers.model import ProviderModel  # noqa: PLC0415 - takes seconds to import

    return ProviderModel(address, style)
