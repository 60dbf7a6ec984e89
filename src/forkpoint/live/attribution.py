"""An attribution service for NVIDIA's ft_launcher (`--ft-attribution-endpoint`), which asks it what to do with a cycle.

    POST /logs  {"log_path": ..., "analysis_intent": "progressive" | "terminal", ...}
    GET  /logs?log_path=...&wait=false  ->  {"status": ..., "recommendation": {"action": "STOP" | "RESTART" | ...}, ...}
    GET  /healthz

A cycle is announced as progressive when it begins and as terminal when it has failed; only then is it diagnosed. The
answer is STOP where `forkpoint run` would exit with 93, RESTART for 75 and 76. As in nvidia-resiliency-ext 0.7 (client in
`shared_utils/health_check.py`, contract in `services/attrsvc/ATTRSVC_SPEC.md`).

A client must know the token in the address, and only files below one folder are read for it.
"""

import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from forkpoint.live.children import (
    DO_NOT_RETRY,
    RETRY,
    RETRY_ELSEWHERE,
    DecisionTask,
    Diagnosed,
    NotDiagnosed,
    Task,
    diagnose_async,
)
from forkpoint.live.serve.server import BoundSocket, quiet_config

# ---------------------------------------------------------------------------------------------------------------------
# The requests.

_INTENTS: Final = ("track_only", "progressive", "terminal")
_RECOMMENDED: Final = {DO_NOT_RETRY: "STOP", RETRY: "RESTART", RETRY_ELSEWHERE: "RESTART"}
_MAX_CYCLES: Final = 1000
_MAX_BODY: Final = 1 << 16
_FAILED: Final = 1
"""The exit code of a cycle: ft_launcher asks about those that failed."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What may be read."""

    root: Path
    """Logs below it, and nothing else."""
    dumps: Path | None = None
    """Where ranks write their dumps. Only those written since the cycle began are read."""
    source: tuple[str, ...] = ()


@dataclass(slots=True)
class _Cycle:
    announced: float
    work: "asyncio.Task[Diagnosed | NotDiagnosed] | None" = None

    @property
    def status(self) -> str:
        if self.work is None:
            return "pending"
        return "completed" if self.work.done() else "in_flight"


@dataclass(slots=True)
class _Service:
    readable: Readable
    token: str
    cycles: dict[str, _Cycle] = field(default_factory=dict[str, "_Cycle"])
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def post(self, request: Request) -> Response:
        if not self._is_known(request):
            return _refuse(403, "FORBIDDEN", "wrong token; use the address that forkpoint attribution has printed")
        body = await _json_body(request)
        intent = str(body.get("analysis_intent") or "track_only").strip().lower()
        path = self._path(body.get("log_path"))
        if isinstance(path, Response):
            return path
        if intent not in _INTENTS:
            return _refuse(400, "INVALID_INTENT", f"analysis_intent is one of {', '.join(_INTENTS)}")
        if path not in self.cycles and len(self.cycles) >= _MAX_CYCLES:
            return _refuse(503, "JOB_LIMIT_REACHED", f"{_MAX_CYCLES} cycles are known already; restart the service")
        cycle = self.cycles.setdefault(path, _Cycle(time.time()))
        if intent == "terminal" and cycle.work is None:
            cycle.work = asyncio.create_task(self._diagnose(path, cycle.announced))
        return JSONResponse({"submitted": True, "normalized_path": path, "mode": "single", "files_analyzed": 0})

    async def get(self, request: Request) -> Response:
        if not self._is_known(request):
            return _refuse(403, "FORBIDDEN", "wrong token; use the address that forkpoint attribution has printed")
        path = self._path(request.query_params.get("log_path"))
        if isinstance(path, Response):
            return path
        cycle = self.cycles.get(path)
        if cycle is None:
            return _refuse(404, "NOT_FOUND", "POST it first")
        if cycle.work is not None and request.query_params.get("wait", "true").lower() != "false":
            await asyncio.wait([cycle.work])
        found = cycle.work.result() if cycle.work is not None and cycle.work.done() else None
        return JSONResponse({"mode": "single", "status": cycle.status, "log_file": path, **_answer(found)})

    async def _diagnose(self, path: str, announced: float) -> Diagnosed | NotDiagnosed:
        async with self.one_at_a_time:
            paths = (path, *_dumps_since(self.readable.dumps, announced))
            wanted = DecisionTask(str(self.readable.root), _FAILED)
            return await diagnose_async(Task(paths, self.readable.source, decision=wanted))

    def _is_known(self, request: Request) -> bool:
        return compare_digest(request.path_params["token"].encode(), self.token.encode())

    def _path(self, given: object) -> str | Response:
        """The real path, which must be below the root: links may not lead out of it."""
        if not isinstance(given, str) or not given.startswith("/") or "\0" in given:
            return _refuse(400, "INVALID_PATH", "log_path must be an absolute path")
        path = Path(os.path.realpath(given))
        if not path.is_relative_to(self.readable.root.resolve()):
            return _refuse(403, "OUTSIDE_ROOT", "log_path is not below --root")
        if not path.is_file():
            return _refuse(404, "NOT_FOUND", "log_path is not a file")
        return str(path)


def make_app(readable: Readable, token: str) -> Starlette:
    service = _Service(readable, token)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "issues": []})

    routes = [
        Route("/{token}/logs", service.post, methods=["POST"]),
        Route("/{token}/logs", service.get, methods=["GET"]),
        Route("/{token}/healthz", health, methods=["GET"]),
    ]
    return Starlette(routes=routes)


def _answer(found: Diagnosed | NotDiagnosed | None) -> dict[str, object]:
    """UNKNOWN stops nothing: ft_launcher then follows its own policy."""
    if not isinstance(found, Diagnosed):
        why = found.why if found else ""
        return {
            "result": {"module": "forkpoint", "result": why},
            "recommendation": {"action": "UNKNOWN", "source": "forkpoint", "reason": why},
        }
    decision = found.decision
    assert decision is not None  # it was asked for
    return {
        "result": {"module": "forkpoint", "result": found.line, "verdict": json.loads(found.document)},
        "recommendation": {
            "action": _RECOMMENDED.get(decision.code, "UNKNOWN"),
            "source": "forkpoint",
            "reason": decision.why,
        },
    }


def _dumps_since(folder: Path | None, announced: float) -> list[str]:
    if folder is None or not folder.is_dir():
        return []
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return [str(path) for path in files if path.stat().st_mtime >= announced]


async def _json_body(request: Request) -> dict[str, Any]:
    """Empty if it is not an object: the missing field is then reported."""
    size = request.headers.get("content-length", "")
    if not size.isdecimal() or int(size) > _MAX_BODY:
        return {}
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _refuse(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": f"forkpoint: {message}"}, status)


# ---------------------------------------------------------------------------------------------------------------------
# The server.

_MAX_CONNECTIONS = 50


def serve(bound: BoundSocket, readable: Readable) -> None:
    """Runs until Ctrl-C or SIGTERM, which uvicorn raises again after the shutdown."""
    config = quiet_config(make_app(readable, bound.token), _MAX_CONNECTIONS)
    uvicorn.Server(config).run(sockets=[bound.socket])
