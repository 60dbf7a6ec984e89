"""How three providers say the same reply: whole, or as the events of a stream."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from forkpoint.agent.model import Call, Reply

Body = dict[str, Any]

PIECE = 7
"""Characters in one fragment of a stream: few, so that text and arguments arrive in several."""


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def as_json(call: Call) -> str:
    """As a model without tools writes it, under the schema that it was given."""
    return f'{{"next": {{"call": {json.dumps(call.name)}, "arguments": {call.arguments}}}}}'


def event(data: Body, *, named: bool) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def called_in(schema: Body) -> tuple[str, ...]:
    """Names that a JSON schema of calls allows."""
    following = schema["properties"]["next"]
    names = [way["properties"]["call"] for way in following.get("anyOf", [following])]
    return tuple(name.get("const") or name["enum"][0] for name in names)  # Anthropic is given an enum of one


class Wire(ABC):
    """One provider's format. `schema_in` is the JSON schema that the answer has to keep to, where one was given."""

    @abstractmethod
    def schema_in(self, body: Body) -> Body | None: ...

    @abstractmethod
    def tools_in(self, body: Body) -> tuple[str, ...]: ...

    @abstractmethod
    def whole(self, reply: Reply) -> Body: ...

    @abstractmethod
    def events(self, reply: Reply, *, out_of_tokens: bool = False) -> Iterator[bytes]:
        """As a stream. Out of tokens, it says that its limit ended it, wherever the reply stands."""

    @abstractmethod
    def refusal(self, text: str) -> Iterator[bytes]:
        """The events of a model that will not answer, as this provider says it."""

    def error(self, status: int, message: str) -> Body:
        return {"error": {"message": message, "type": f"scripted_{status}", "param": None, "code": None}}


class Chat(Wire):
    """OpenAI chat completions: what vLLM, Ollama and llama.cpp speak too."""

    def schema_in(self, body: Body) -> Body | None:
        shape = body.get("response_format") or {}
        return shape["json_schema"]["schema"] if shape.get("type") == "json_schema" else None

    def tools_in(self, body: Body) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in body.get("tools", ()))

    def whole(self, reply: Reply) -> Body:
        message: Body = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [self._call(call, call.arguments) for call in reply.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(reply)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(reply)}

    def events(self, reply: Reply, *, out_of_tokens: bool = False) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})
        for piece in pieces(reply.text):
            yield self._chunk({"content": piece})
        for index, call in enumerate(reply.calls):
            yield self._chunk({"tool_calls": [{"index": index, **self._call(call, "")}]})
            for piece in pieces(call.arguments):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield self._chunk({}, "length" if out_of_tokens else self._finish(reply))
        counted = {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(reply)}
        yield event(counted, named=False)
        yield b"data: [DONE]\n\n"

    def refusal(self, text: str) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": None, "refusal": ""})
        yield self._chunk({"refusal": text})
        yield self._chunk({}, "stop")
        yield b"data: [DONE]\n\n"

    def _chunk(self, delta: Body, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]}, named=False)

    def _head(self, what: str) -> Body:
        return {"id": "chat-1", "object": what, "created": 1, "model": "scripted"}

    def _call(self, call: Call, arguments: str) -> Body:
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}

    def _finish(self, reply: Reply) -> str:
        return "tool_calls" if reply.calls else "stop"

    def _usage(self, reply: Reply) -> Body:
        return {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.input_tokens + reply.usage.output_tokens,
        }


class Responses(Wire):
    """OpenAI responses."""

    def schema_in(self, body: Body) -> Body | None:
        shape = (body.get("text") or {}).get("format") or {}
        return shape["schema"] if shape.get("type") == "json_schema" else None

    def tools_in(self, body: Body) -> tuple[str, ...]:
        return tuple(tool["name"] for tool in body.get("tools", ()))

    def whole(self, reply: Reply) -> Body:
        items = [self._message(reply.text)] if reply.text else []
        items += [self._call(index, call) for index, call in enumerate(reply.calls)]
        return self._response("completed", items, reply)

    def events(self, reply: Reply, *, out_of_tokens: bool = False) -> Iterator[bytes]:
        whole = self.whole(reply)
        said: list[Body] = [{"type": "response.created", "response": self._response("in_progress", [], None)}]
        for index, item in enumerate(whole["output"]):
            where = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "message":
                said += self._text_events(item, where)
            else:
                said += self._call_events(item, where)
            said.append({"type": "response.output_item.done", "output_index": index, "item": item})
        said.append({"type": "response.completed", "response": whole})
        if out_of_tokens:
            why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            said[-1] = {"type": "response.incomplete", "response": {**whole, **why}}
        yield from self._numbered(said)

    def refusal(self, text: str) -> Iterator[bytes]:
        part = {"type": "refusal", "refusal": text}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        where = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
        yield from self._numbered(
            [
                {"type": "response.created", "response": self._response("in_progress", [], None)},
                {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
                {"type": "response.refusal.delta", **where, "delta": text},
                {"type": "response.refusal.done", **where, "refusal": text},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": self._response("completed", [item], None)},
            ]
        )

    def _numbered(self, said: list[Body]) -> Iterator[bytes]:
        for number, data in enumerate(said):
            yield event({**data, "sequence_number": number}, named=True)

    def _text_events(self, item: Body, where: Body) -> Iterator[Body]:
        begun = {**item, "status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": where["output_index"], "item": begun}
        for piece in pieces(item["content"][0]["text"]):
            delta = {"content_index": 0, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.delta", **where, **delta}

    def _call_events(self, item: Body, where: Body) -> Iterator[Body]:
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": where["output_index"], "item": begun}
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
        finished = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **where, **finished}

    def _message(self, text: str) -> Body:
        part = {"type": "output_text", "text": text, "annotations": []}
        return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}

    def _call(self, index: int, call: Call) -> Body:
        given = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        return {"id": f"fc_{index}", "type": "function_call", "status": "completed", **given}

    def _response(self, status: str, output: list[Body], reply: Reply | None) -> Body:
        said: Body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "status": status}
        said |= {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        if reply:
            used = reply.usage
            said["usage"] = {
                "input_tokens": used.input_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": used.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used.input_tokens + used.output_tokens,
            }
        return said


class Messages(Wire):
    """Anthropic messages."""

    def schema_in(self, body: Body) -> Body | None:
        shape = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        return shape["schema"] if shape.get("type") == "json_schema" else None

    def tools_in(self, body: Body) -> tuple[str, ...]:
        return tuple(tool["name"] for tool in body.get("tools", ()))

    def whole(self, reply: Reply) -> Body:
        content: list[Body] = [{"type": "text", "text": reply.text}] if reply.text else []
        content += [self._call(call, json.loads(call.arguments)) for call in reply.calls]
        return {**self._head(reply), "content": content, "stop_reason": self._stop(reply)}

    def events(self, reply: Reply, *, out_of_tokens: bool = False) -> Iterator[bytes]:
        yield event({"type": "message_start", "message": self._head(reply)}, named=True)
        blocks: list[tuple[Body, list[Body]]] = []
        if reply.text:
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call in reply.calls:
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(call.arguments)]
            blocks.append((self._call(call, {}), deltas))
        for index, (block, deltas) in enumerate(blocks):
            yield event({"type": "content_block_start", "index": index, "content_block": block}, named=True)
            for delta in deltas:
                yield event({"type": "content_block_delta", "index": index, "delta": delta}, named=True)
            yield event({"type": "content_block_stop", "index": index}, named=True)
        yield from self._end("max_tokens" if out_of_tokens else self._stop(reply), reply.usage.output_tokens)

    def refusal(self, text: str) -> Iterator[bytes]:
        yield event({"type": "message_start", "message": self._head(None)}, named=True)
        yield event(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}}, named=True
        )
        yield event({"type": "content_block_stop", "index": 0}, named=True)
        yield from self._end("refusal", 1)

    def error(self, status: int, message: str) -> Body:
        return {"type": "error", "error": {"type": f"scripted_{status}", "message": message}}

    def _end(self, reason: str, tokens: int) -> Iterator[bytes]:
        stopped = {"stop_reason": reason, "stop_sequence": None}
        yield event({"type": "message_delta", "delta": stopped, "usage": {"output_tokens": tokens}}, named=True)
        yield event({"type": "message_stop"}, named=True)

    def _head(self, reply: Reply | None) -> Body:
        used = {
            "input_tokens": reply.usage.input_tokens if reply else 1,
            "output_tokens": reply.usage.output_tokens if reply else 1,
        }
        said: Body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
        return {**said, "stop_reason": None, "stop_sequence": None, "usage": used}

    def _call(self, call: Call, given: Any) -> Body:
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}

    def _stop(self, reply: Reply) -> str:
        return "tool_use" if reply.calls else "end_turn"


WIRES: dict[str, Wire] = {"/chat/completions": Chat(), "/responses": Responses(), "/messages": Messages()}
"""By how the path ends."""
