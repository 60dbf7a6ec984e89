"""A model behind an endpoint. The loop is ours; pydantic-ai does the wire format, the provider's own client the requests."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model, ModelRequestParameters

from forkpoint.agent.model import Message, ModelFailed, Offer, Reply, Usage
from forkpoint.agent.providers import Address, Provider, Style
from forkpoint.agent.providers.connection import failure_line, open_http, reason_for
from forkpoint.agent.providers.styles import JsonStyle, ToolStyle

# ---------------------------------------------------------------------------------------------------------------------
# The providers' own clients, imported on first use: OpenAI's two APIs (the older one also for compatible servers), and
# Anthropic's.

_RETRIES: Final = 1
"""Done by the provider's client after a lost connection, a 429 or a 5xx. The time limit covers both attempts."""
_OUTPUT_TOKENS: Final = 16_000
"""Thinking included."""
_NO_KEY: Final = "none"
"""Clients insist on a key. `connection` removes it again."""


def open_model(address: Address, http: "httpx2.AsyncClient", within_s: float) -> Model:
    return (_open_anthropic if address.provider is Provider.ANTHROPIC else _open_openai)(address, http, within_s)


def _open_anthropic(address: Address, http: "httpx2.AsyncClient", within_s: float) -> Model:
    from anthropic import AsyncAnthropic  # noqa: PLC0415 - only if it is used
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
    from openai import AsyncOpenAI  # noqa: PLC0415 - only if it is used
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
        # Otherwise a truncated stream would look like a complete answer.
        openai_chat_streaming_requires_finish_reason=True,
        # The user asked for it. An endpoint that cannot do it returns an error.
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
            # No token limit: servers with a small context window reject a limit that does not fit.
            return models.OpenAIChatModel(address.model, provider=provider, profile=profile)


# ---------------------------------------------------------------------------------------------------------------------
# A model behind an endpoint.

_WHOLE: Final = ("stop", "length", "tool_call")
"""Finish reasons of usable answers. One that ran out of tokens counts as usable."""


@dataclass(frozen=True, slots=True)
class _Asked:
    messages: list[ModelMessage]
    offered: ModelRequestParameters
    within_s: float


class ProviderModel:
    def __init__(self, address: Address, style: Style) -> None:
        self._address = address
        self._style = JsonStyle() if style is Style.JSON else ToolStyle()
        self._trusted = httpx2.create_ssl_context()

    @property
    def name(self) -> str:
        return self._address.name

    def ask(
        self,
        instructions: str,
        messages: Sequence[Message],
        offers: Sequence[Offer],
        within_s: float,
        hear: Callable[[str], None],
    ) -> Reply:
        told = self._style.tell(self._style.instruct(instructions, offers), messages)
        asked = _Asked(told, self._style.offer(offers), within_s)
        response = _finish(self._within(asked, hear))
        text, calls = self._style.hear(response)
        scrub = self._address.scrub
        scrubbed = tuple(replace(call, arguments=scrub(call.arguments)) for call in calls)
        return Reply(scrub(text), scrubbed, self._usage(response))

    async def _within(self, asked: _Asked, hear: Callable[[str], None]) -> ModelResponse:
        """An overall time limit: a slow trickle of bytes would never trip the timeouts of the client."""
        try:
            async with asyncio.timeout(asked.within_s):
                return await self._listen(asked, hear)
        except TimeoutError:
            raise ModelFailed(failure_line(self._address, f"no complete answer within {asked.within_s:g} s")) from None

    async def _listen(self, asked: _Asked, hear: Callable[[str], None]) -> ModelResponse:
        async with aclosing(self._stream(asked)) as stream:
            async for said in stream:
                if isinstance(said, ModelResponse):
                    return self._usable(said)
                hear(said)
        raise AssertionError("a stream ends with its response")

    async def _stream(self, asked: _Asked) -> AsyncGenerator[str | ModelResponse, None]:
        """Pieces of text as they arrive, then the whole response. Any failure here is blamed on the endpoint."""
        async with open_http(self._trusted, asked.within_s, with_key=self._address.key is not None) as http:
            model = open_model(self._address, http, asked.within_s)
            try:
                async with model_request_stream(
                    model, asked.messages, model_request_parameters=asked.offered, instrument=False
                ) as stream:
                    async for event in stream:
                        match event:
                            case PartStartEvent(part=TextPart(content=text)) if text:
                                yield text
                            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                                yield text
                            case _:
                                pass
                    yield stream.get()
            except Exception as problem:  # noqa: BLE001 three clients parse what anyone may have sent
                raise ModelFailed(failure_line(self._address, reason_for(problem, self._address))) from None

    def _usable(self, response: ModelResponse) -> ModelResponse:
        if response.finish_reason == "content_filter":
            raise ModelFailed(failure_line(self._address, "refused to answer"))
        if response.state != "complete" or response.finish_reason not in _WHOLE:
            raise ModelFailed(failure_line(self._address, "the answer broke off"))
        return response

    def _usage(self, response: ModelResponse) -> Usage:
        used = response.usage
        return Usage(used.input_tokens, used.output_tokens, self._cost(response))

    def _cost(self, response: ModelResponse) -> float | None:
        """From the price list in pydantic-ai, for the requested model. No request is made."""
        if self._address.provider is Provider.OPENAI_COMPATIBLE:
            return None
        try:
            return float(replace(response, model_name=self._address.model).cost().total_price)
        except (LookupError, ValueError):
            return None


def _finish(asking: Coroutine[Any, Any, ModelResponse]) -> ModelResponse:
    """Runs in a new event loop. Not `asyncio.run`: it waits for threads, and a DNS lookup may block one for minutes."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(asking)
    try:
        return loop.run_until_complete(task)
    finally:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
