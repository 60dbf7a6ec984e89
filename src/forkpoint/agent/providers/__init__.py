"""Models behind an endpoint: OpenAI, Anthropic, and all who speak OpenAI's chat format.

There is no default endpoint. A provider has to be named, and then its own host, or the one given as the endpoint, is all
that is contacted: environment proxies are not used, redirects not followed, nothing is reported to anyone else. Keys
come from the environment and appear in no message. Needs the extra `agent`; each provider's client is imported when it
is asked for.
"""

from importlib.util import find_spec

from forkpoint.agent.model import Model
from forkpoint.agent.providers.address import Provider, Style, parse_address
from forkpoint.errors import UsageError

__all__ = ["Provider", "Style", "connect"]


def connect(spec: str, endpoint: str | None, key_variable: str | None, style: Style) -> Model:
    """`spec` is `PROVIDER:NAME`. Nothing is sent before the model is asked."""
    address = parse_address(spec, endpoint, key_variable)
    client = "anthropic" if address.provider is Provider.ANTHROPIC else "openai"
    missing = [package for package in ("pydantic_ai", client) if find_spec(package) is None]
    if missing:
        raise UsageError(f"--model {spec} needs {' and '.join(missing)}: pip install 'forkpoint[agent]'")
    from forkpoint.agent.providers.model import ProviderModel  # noqa: PLC0415 - takes seconds to import

    return ProviderModel(address, style)
