"""The providers' own clients, imported where one is asked for: OpenAI's two formats, also for all who speak the older one, and
Anthropic's.
"""

from typing import TYPE_CHECKING, Final

from pydantic_ai.models import Model

from forkpoint.agent.providers.address import Address, Provider

if TYPE_CHECKING:
    import httpx2

_RETRIES: Final = 1
"""By the provider's client, after a lost connection, a 429 or a 5xx. The time limit covers both tries."""
_OUTPUT_TOKENS: Final = 16_000
"""Thinking included."""
_NO_KEY: Final = "none"
"""Clients insist on a key. `connection` removes it again."""


def open_model(address: Address, http: "httpx2.AsyncClient", within_s: float) -> Model:
    return (_open_anthropic if address.provider is Provider.ANTHROPIC else _open_openai)(address, http, within_s)


def _open_anthropic(address: Address, http: "httpx2.AsyncClient", within_s: float) -> Model:
    from anthropic import AsyncAnthropic  # noqa: PLC0415 - only where it is asked for
    from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings  # noqa: PLC0415 - likewise
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415 - likewise

    client = AsyncAnthropic(
        api_key=address.key or _NO_KEY,
        base_url=address.url,
        http_client=http,
        timeout=within_s,
        max_retries=_RETRIES,
    )
    return AnthropicModel(
        address.model,
        provider=AnthropicProvider(anthropic_client=client),
        settings=AnthropicModelSettings(max_tokens=_OUTPUT_TOKENS),
    )


def _open_openai(address: Address, http: "httpx2.AsyncClient", within_s: float) -> Model:
    from openai import AsyncOpenAI  # noqa: PLC0415 - only where it is asked for
    from pydantic_ai.models import openai as models  # noqa: PLC0415 - likewise
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415 - likewise
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415 - likewise

    client = AsyncOpenAI(
        api_key=address.key or _NO_KEY,
        base_url=address.url,
        http_client=http,
        timeout=within_s,
        max_retries=_RETRIES,
    )
    provider = OpenAIProvider(openai_client=client)
    profile = OpenAIModelProfile(
        # Without one a stream that was cut would pass for a whole answer.
        openai_chat_streaming_requires_finish_reason=True,
        # Asked for by flag. An endpoint that cannot do it says so.
        supports_json_schema_output=True,
    )
    match address.provider:
        case Provider.OPENAI:
            kept = models.OpenAIResponsesModelSettings(max_tokens=_OUTPUT_TOKENS, openai_store=False)
            return models.OpenAIResponsesModel(address.model, provider=provider, settings=kept)
        case Provider.OPENAI_CHAT:
            limited = models.OpenAIChatModelSettings(max_tokens=_OUTPUT_TOKENS)
            return models.OpenAIChatModel(address.model, provider=provider, profile=profile, settings=limited)
        case _:
            # No limit on tokens: servers with a small window refuse one that does not fit.
            return models.OpenAIChatModel(address.model, provider=provider, profile=profile)
