"""Anthropic's format."""

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider

from forkpoint.agent.providers.address import Address
from forkpoint.agent.providers.limits import NO_KEY, OUTPUT_TOKENS, RETRIES


def open_model(address: Address, http: httpx2.AsyncClient, within_s: float) -> Model:
    client = AsyncAnthropic(
        api_key=address.key or NO_KEY,
        base_url=address.url,
        http_client=http,
        timeout=within_s,
        max_retries=RETRIES,
    )
    return AnthropicModel(
        address.model,
        provider=AnthropicProvider(anthropic_client=client),
        settings=AnthropicModelSettings(max_tokens=OUTPUT_TOKENS),
    )
