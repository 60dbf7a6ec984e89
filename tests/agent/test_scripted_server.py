"""The scripted endpoint is a witness in many tests, so it is heard itself, by clients that did not write it."""

import httpx2
import pytest

from agent.scripted_server import ScriptedServer, Silent, both, calls, says
from looping import for_each

REPLY = both(says("Rank 2 never came."), calls("progress", seq=9), calls("slots"))
ASKED = [{"role": "user", "content": "What happened?"}]


# Clients take seconds to import, which every worker would spend.


def chat(server):
    from openai import OpenAI  # noqa: PLC0415 as said

    with OpenAI(api_key="none", base_url=server.url) as client:
        message = client.chat.completions.create(model="m", messages=ASKED).choices[0].message
    return message.content, [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]


def responses(server):
    from openai import OpenAI  # noqa: PLC0415 as said

    with OpenAI(api_key="none", base_url=server.url) as client:
        response = client.responses.create(model="m", input=ASKED)
    made = [item for item in response.output if item.type == "function_call"]
    return response.output_text, [(call.call_id, call.name, call.arguments) for call in made]


def messages(server):
    from anthropic import Anthropic  # noqa: PLC0415 as said

    with Anthropic(api_key="none", base_url=server.anthropic_url) as client:
        first, *made = client.messages.create(model="m", max_tokens=9, messages=ASKED).content
    return first.text, [(call.id, call.name, str(call.input).replace("'", '"')) for call in made]


@for_each("client", [chat, responses, messages])
def test_a_reply_is_said_whole_to_those_who_do_not_stream(client):
    with ScriptedServer([REPLY]) as server:
        text, made = client(server)

    assert text == "Rank 2 never came."
    assert made == [("call_0", "progress", '{"seq": 9}'), ("call_1", "slots", "{}")]
    assert "What happened?" in server.requests[0].last


def test_a_step_may_depend_on_the_request_and_an_end_is_told():
    with ScriptedServer([lambda request: says(request.last.upper())]) as server:
        url = f"{server.url}/chat/completions"
        answer, over = (httpx2.post(url, json={"messages": ASKED}, trust_env=False) for _ in range(2))

    assert answer.json()["choices"][0]["message"]["content"] == "USER\nWHAT HAPPENED?"
    assert (over.status_code, over.json()["error"]["message"]) == (400, "the script is over")
    assert len(server.requests) == 2


def test_a_server_with_someone_waiting_can_be_closed():
    with ScriptedServer([Silent()]) as server, pytest.raises(httpx2.TimeoutException):
        httpx2.post(f"{server.url}/chat/completions", json={"messages": ASKED}, trust_env=False, timeout=0.1)

    assert server.closing.is_set()
