"""OpenAI's two formats, for OpenAI and for all who speak the older one."""

from typing import Final

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIChatModelSettings,
    OpenAIResponsesModel,
    OpenAIResponsesModelSettings,
)
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from forkpoint.agent.providers.address import Address, Provider
from forkpoint.agent.providers.limits import NO_KEY, OUTPUT_TOKENS, RETRIES

_PROFILE: Final = OpenAIModelProfile(
    # Without one a stream that was cut would pass for a whole answer.
    openai_chat_streaming_requires_finish_reason=True,
    # Asked for by flag. An endpoint that cannot do it says so.
    supports_json_schema_output=True,
)


def open_model(address: Address, http: httpx2.AsyncClient, within_s: float) -> Model:
    client = AsyncOpenAI(
        api_key=address.key or NO_KEY,
        base_url=address.url,
        http_client=http,
        timeout=within_s,
        max_retries=RETRIES,
    )
    provider = OpenAIProvider(openai_client=client)
    match address.provider:
        case Provider.OPENAI:
            kept = OpenAIResponsesModelSettings(max_tokens=OUTPUT_TOKENS, openai_store=False)
            return OpenAIResponsesModel(address.model, provider=provider, settings=kept)
        case Provider.OPENAI_CHAT:
            limited = OpenAIChatModelSettings(max_tokens=OUTPUT_TOKENS)
            return OpenAIChatModel(address.model, provider=provider, profile=_PROFILE, settings=limited)
        case _:
            # No limit on tokens: servers with a small window refuse one that does not fit.
            return OpenAIChatModel(address.model, provider=provider, profile=_PROFILE)
