"""All that can go wrong between here and a model: one line each, nothing leaked, and never longer than allowed."""

import json
import re
import socket
from itertools import repeat
from threading import Event

import pytest

from agent.endpoints import KEY, LONG, WIRES, ask, url_for
from agent.scripted_server import (
    Cut,
    Flood,
    HangUp,
    Raw,
    Refusal,
    ScriptedServer,
    Silent,
    Status,
    Trickle,
    both,
    calls,
    says,
)
from forkpoint.agent.model import ModelFailed, Said
from forkpoint.agent.providers import Style, connect


@pytest.fixture(params=WIRES)
def spec(request):
    return request.param


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("MINE", KEY)


def failure(server, spec, within_s=LONG):
    with pytest.raises(ModelFailed) as failed:
        ask(server, spec, within_s=within_s)
    text = str(failed.value)
    assert text.startswith("127.0.0.1:")
    assert text.isprintable()
    assert KEY not in text
    assert len(text) < 400
    return text


REPLY = both(says("Rank 2 never came to seq 9."), calls("progress", n=1))
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

FAULTS = {
    "wrong key": (Status(401, f"bad key {KEY}"), r"did not accept the key in MINE \(status 401\)$"),
    "forbidden": (Status(403), r"did not accept the key in MINE \(status 403\)$"),
    "no such model": (Status(404, "no model x"), r"no such model or path \(status 404\): no model x$"),
    "bad request": (Status(400, f"no\x1b[2J\ntools {KEY}"), r"rejected the request \(status 400\): no\\x1b\[2J tools \[key\]$"),
    "a key cut in two": (Status(400, "x" * 195 + KEY), r"x\[key"),
    "a long story": (Status(422, "why " * 999), r"\(status 422\): (why ){50}\.\.\.$"),
    "redirect": (Status(302, headers=(("Location", "http://127.0.0.1:1/"),)), r"redirects elsewhere \(status 302\), which is not followed$"),
    "a page": (Raw(b"<html>", "text/html"), r"sent text/html instead of a stream"),
    "not a stream": (Raw(b"{}", "application/json"), r"sent application/json instead of a stream"),
    "packed": (Raw(b"\x1f\x8b", headers=(("Content-Encoding", "gzip"),)), r"compressed answer \(gzip\)"),
    "no event": (Raw(b""), r"violated the protocol$"),
    "no JSON": (Raw(b"event: message_start\ndata: {bad\n\n"), r"sent something that is not JSON$"),
    "no text": (Raw(b"event: message_start\ndata: \xff\xfe{}\n\n"), r"sent something that is not JSON$"),
    "a list": (Raw(b"event: message_start\ndata: []\n\n"), r"violated the protocol$|broke off$|failed"),
    "no choices": (Raw(f"data: {json.dumps({**CHUNK, 'choices': []})}\n\ndata: [DONE]\n\n".encode()), r"without a `finish_reason`$|broke off$|protocol$"),
    "cut": (Cut(REPLY, 4), r"without a `finish_reason`$|broke off$"),
    "too much": (Flood(), r"sent more than 8 MiB for one answer$"),
    "refusal": (Refusal(), r"refused to answer$"),
}  # fmt: skip

RETRIED = {
    "slow down": (Status(429, "later"), r"slow down, or the quota is spent \(status 429\): later$"),
    "its own fault": (Status(500), r"failed \(status 500\): scripted$"),
    "too much of an error": (Flood(500), r"sent more than 8 MiB for one answer$"),
    "hung up": (HangUp(), r"the connection ended before the answer did$"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_becomes_one_line_and_is_not_tried_again(spec, fault):
    step, line = FAULTS[fault]
    with ScriptedServer(repeat(step)) as server:
        text = failure(server, spec)

    assert re.search(line, text), text
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", RETRIED)
def test_what_may_pass_is_tried_once_more_and_then_becomes_one_line(spec, fault):
    step, line = RETRIED[fault]
    with ScriptedServer(repeat(step)) as server:
        text = failure(server, spec)

    assert re.search(line, text), text
    assert len(server.requests) == 2


def test_what_passed_is_no_failure(spec):
    with ScriptedServer([Status(500), says("yes")]) as server:
        assert ask(server, spec).text == "yes"


@pytest.mark.parametrize("step", [Silent(), Trickle()])
def test_time_is_limited_as_a_whole_and_not_only_between_bytes(spec, step):
    with ScriptedServer(repeat(step)) as server:
        text = failure(server, spec, within_s=0.5)

    assert text.endswith("no complete answer within 0.5 s")


def test_a_dead_endpoint_is_told_as_such(spec):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"

    with pytest.raises(ModelFailed, match=r"^127\.0\.0\.1:\d+: connection refused: nothing listens there$"):
        connect(spec, dead, None, Style.TOOLS).ask("", [Said("x")], (), LONG, lambda _: None)


def test_an_endpoint_that_does_not_speak_tls_is_not_trusted(spec):
    with ScriptedServer([]) as server:
        secure = url_for(server, spec).replace("http:", "https:")
        with pytest.raises(ModelFailed, match=r"^127\.0\.0\.1:\d+: no trusted connection"):
            connect(spec, secure, None, Style.TOOLS).ask("", [Said("x")], (), LONG, lambda _: None)

    assert server.requests == []


def test_a_name_that_nobody_knows_is_told_as_such(spec, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(ModelFailed, match=r"^model\.invalid: no such host$"):
        connect(spec, "http://model.invalid/v1", None, Style.TOOLS).ask("", [Said("x")], (), LONG, lambda _: None)


def test_a_name_server_that_never_answers_does_not_hold_the_caller(monkeypatch):
    released = Event()

    def stuck(*_, **__):
        released.wait(100)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    try:
        with pytest.raises(ModelFailed, match="no complete answer within"):
            connect("openai:gpt-5", "http://model.invalid/v1", None, Style.TOOLS).ask(
                "", [Said("x")], (), 0.2, lambda _: None
            )
        assert not released.is_set()
    finally:
        released.set()


def test_an_endpoint_that_wants_a_key_and_was_given_none_says_how_to_give_one(spec):
    with ScriptedServer([Status(401)]) as server, pytest.raises(ModelFailed, match="name its variable with --key-var"):
        connect(spec, url_for(server, spec), None, Style.TOOLS).ask("", [Said("x")], (), LONG, lambda _: None)


def test_a_listener_that_fails_is_not_the_endpoints_fault(spec):
    def closed(_):
        raise BrokenPipeError("the terminal is gone")

    with ScriptedServer([says("Rank 2 never came.")]) as server, pytest.raises(BrokenPipeError, match="terminal"):
        ask(server, spec, hear=closed)
