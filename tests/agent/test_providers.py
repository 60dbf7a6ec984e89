"""Real clients against a scripted endpoint on loopback, in both wire formats and both styles."""

import json
import subprocess
import sys
from itertools import repeat
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from agent.endpoints import KEY, LONG, MODELS, OFFERS, WIRES, ask, url_for
from agent.scripted_server import SPENT, OutOfTokens, ScriptedServer, both, calls, says, writes
from forkpoint.agent.model import Answered, Call, Reply, Said, Usage
from forkpoint.agent.providers import Style, connect
from looping import for_each


@pytest.fixture(params=WIRES)
def spec(request):
    return request.param


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("MINE", KEY)


# ------------------------------------------------------------------------------------------------------ what is said


def test_text_and_calls_come_back_as_the_model_said_them(spec):
    with ScriptedServer([both(says("I look first."), calls("progress", n=1), calls("slots", n=2))]) as server:
        reply = ask(server, spec)

    assert reply.text == "I look first."
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("progress", {"n": 1}),
        ("slots", {"n": 2}),
    ]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (SPENT.input_tokens, SPENT.output_tokens)


def test_text_is_heard_as_it_arrives(spec):
    heard = []

    with ScriptedServer([says("Rank 2 never came to seq 9.")]) as server:
        reply = ask(server, spec, hear=heard.append)

    assert len(heard) > 1
    assert "".join(heard) == reply.text == "Rank 2 never came to seq 9."


def test_instructions_facts_and_offers_reach_the_model(spec):
    with ScriptedServer([says("yes")]) as server:
        ask(server, spec)

    (request,) = server.requests
    assert request.offered == ("progress", "slots")
    assert "Name no rank without evidence." in request.text
    assert request.last.count("What happened?") == 1
    assert "How far each rank got." in json.dumps(request.body["tools"])


@pytest.mark.parametrize("style", list(Style))
def test_a_conversation_is_told_again_with_its_calls_and_their_results(spec, style):
    call = Call("c1", "progress", '{"n": 1}')
    asked = Said("What happened?")

    with ScriptedServer([says("I see.")]) as server:
        ask(
            server,
            spec,
            style,
            [asked, Reply("First:", (call,), Usage()), Answered(call, "[F1] rank 2"), Said("Go on.")],
        )

    text = server.requests[0].text
    assert text.index("What happened?") < text.index("First:") < text.index("[F1] rank 2") < text.index("Go on.")
    assert server.requests[0].wire.tools_in(server.requests[0].body) == (
        ("progress", "slots") if style is Style.TOOLS else ()
    )


@pytest.mark.parametrize("arguments", ["{bad", "[1]", '"text"', "{} trailing"])
def test_arguments_that_are_no_object_are_handed_on_as_they_were_written(spec, arguments):
    with ScriptedServer([writes("progress", arguments), says("sorry")]) as server:
        reply = ask(server, spec)
        (call,) = reply.calls
        again = ask(server, spec, messages=[Said("Hm?"), reply, Answered(call, "not JSON"), Said("Once more.")])

    assert call.arguments == arguments
    assert again.text == "sorry"
    assert "not JSON" in server.requests[1].text


def test_a_call_without_arguments_has_empty_ones(spec):
    with ScriptedServer([writes("progress", "")]) as server:
        (call,) = ask(server, spec).calls

    assert call.arguments == "{}"


def test_a_model_that_said_nothing_can_be_asked_again(spec):
    with ScriptedServer([says("well")]) as server:
        reply = ask(server, spec, messages=[Said("Hm?"), Reply("", (), Usage()), Said("Say something.")])

    assert reply.text == "well"


def test_an_answer_that_ran_out_of_tokens_says_what_it_says(spec):
    with ScriptedServer([OutOfTokens(both(says("Rank 2"), writes("progress", '{"n": ')))]) as server:
        reply = ask(server, spec)

    assert (reply.text, [call.arguments for call in reply.calls]) == ("Rank 2", ['{"n": '])


def test_a_price_is_known_for_a_providers_model_and_not_for_a_local_one():
    with ScriptedServer(repeat(says("yes", Usage(1000, 1000)))) as server:
        costs = {spec: ask(server, spec).usage.cost_usd for spec in [*MODELS, "openai:no-such-model"]}

    assert costs["openai:gpt-5"] > 0
    assert costs["anthropic:claude-sonnet-5"] > 0
    assert costs["openai-compatible:local"] is None
    assert costs["openai:no-such-model"] is None


def test_openai_is_told_to_keep_nothing():
    with ScriptedServer([says("yes")]) as server:
        ask(server, "openai:gpt-5")

    assert server.requests[0].body["store"] is False


# --------------------------------------------------------------------------------------------------- the style JSON


def test_without_tools_a_call_is_text_under_a_schema(spec):
    with ScriptedServer([calls("slots", n=2)]) as server:
        reply = ask(server, spec, Style.JSON)

    assert (reply.text, [(call.name, json.loads(call.arguments)) for call in reply.calls]) == (
        "",
        [("slots", {"n": 2})],
    )
    assert "tools" not in server.requests[0].body
    assert server.requests[0].offered == ("progress", "slots")
    assert "- progress(claim): How far each rank got." in server.requests[0].text


def test_the_schema_takes_a_call_with_its_own_arguments_and_no_other(spec):
    with ScriptedServer([says("yes")]) as server:
        ask(server, spec, Style.JSON)
    schema = server.requests[0].wire.schema_in(server.requests[0].body)
    validator = Draft202012Validator(schema)

    def fits(name, kind):
        return validator.is_valid({"next": {"call": name, "arguments": {"claim": {"kind": kind, "n": 1}}}})

    assert fits("progress", "a")
    assert fits("slots", "b")
    assert not fits("progress", "b")
    assert not fits("other", "a")
    assert not validator.is_valid({"call": "progress", "arguments": {}})
    assert "oneOf" not in json.dumps(schema)


def test_ids_of_calls_differ_where_nobody_gives_them():
    with ScriptedServer(repeat(calls("progress", n=1))) as server:
        model = connect("openai-compatible:local", server.url, None, Style.JSON)
        ids = [model.ask("", [Said("x")], OFFERS, LONG, lambda _: None).calls[0].id for _ in range(2)]

    assert ids[0] != ids[1]


@for_each(
    "text",
    ["I cannot.", '{"next": {"call": 3, "arguments": {}}}', '{"next": []}', '{"next": {"call": "pro', "[" * 20_000],
)
def test_without_tools_anything_but_a_call_is_text(text):
    with ScriptedServer([says(text)]) as server:
        reply = ask(server, "openai-compatible:local", Style.JSON)

    assert (reply.text, reply.calls) == (text, ())


def test_without_offers_nothing_is_forced(spec):
    with ScriptedServer([says("yes")]) as server:
        model = connect(spec, url_for(server, spec), None, Style.JSON)
        model.ask("Be brief.", [Said("Done?")], (), LONG, lambda _: None)

    assert server.requests[0].wire.schema_in(server.requests[0].body) is None


# ---------------------------------------------------------------------------------------------------- what goes out


def test_the_key_is_sent_and_what_the_machine_is_like_is_not(spec, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Surprise: 1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Surprise: 1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")

    with ScriptedServer([says("yes")]) as server:
        ask(server, spec)

    headers = server.requests[0].headers
    assert KEY in headers.get("authorization", "") + headers.get("x-api-key", "")
    assert headers["user-agent"].startswith("forkpoint/")
    assert [name for name in headers if name.startswith(("x-stainless", "x-surprise", "openai-"))] == []


def test_without_a_named_variable_no_key_is_sent(spec, monkeypatch):
    for variable in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(variable, KEY)

    with ScriptedServer([says("yes")]) as server:
        model = connect(spec, url_for(server, spec), None, Style.TOOLS)
        model.ask("", [Said("x")], OFFERS, LONG, lambda _: None)

    assert not {"authorization", "x-api-key"} & set(server.requests[0].headers)
    assert KEY not in str(server.requests[0])


def test_a_key_that_comes_back_in_an_answer_is_not_kept(spec):
    with ScriptedServer([both(says(f"your key is {KEY}"), calls("progress", key=KEY))]) as server:
        reply = ask(server, spec)

    assert KEY not in str(reply)
    assert reply.text == "your key is [key]"


WATCHED = """
import sys
from forkpoint.agent.model import Said
from forkpoint.agent.providers import Style, connect

def watch(event, given):
    if event == "socket.connect":
        print("connect", given[1][:2])
    elif event == "socket.getaddrinfo":
        print("look up", given[0])

sys.addaudithook(watch)
for spec, url in zip(sys.argv[1::2], sys.argv[2::2]):
    print(connect(spec, url, None, Style.TOOLS).ask("", [Said("x")], (), 600, lambda _: None).text)
"""


def test_nobody_but_the_endpoint_is_contacted_whatever_the_environment_says(tmp_path):
    """Nobody is asked for prices or told of the use, and the proxies, which lead nowhere, are not taken."""
    dead = "http://127.0.0.1:1"
    names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    environment = dict.fromkeys([*names, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"], dead)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    script = tmp_path / "watched.py"
    script.write_text(WATCHED)

    with ScriptedServer(repeat(says("yes"))) as server:
        port = int(server.anthropic_url.rpartition(":")[2])
        pairs = [word for spec in MODELS for word in (spec, url_for(server, spec))]
        done = subprocess.run(
            [sys.executable, script, *pairs],
            env={**environment, "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, "")
    lines = set(done.stdout.splitlines())
    assert lines <= {"yes", "look up 127.0.0.1", f"connect ('127.0.0.1', {port})"}
    assert done.stdout.splitlines().count("yes") == len(MODELS)
    assert not any("authorization" in request.headers for request in server.requests)
