"""The application: all endpoints, behind the guard.

A new endpoint has a `Route` here, without `/v1`, which any path may begin with. Its function reads
its body by `bodies.read`, and raises ApiError or any SpecchatError, which `_refused` turns into a
reply; errors under a path of another vendor get that vendor's shape in `api_errors.body_for`. The
guard wants a key for every path outside `guard.OPEN_PATHS`. What asks the engine for something
short uses `Service.call`, as `token_tools` does. What answers a conversation makes a `ChatBody` of
its own body and replies through `api_reply.reply_to`, with an `EventWriter` for its events; its
name goes into `activity.Api`, by which metrics count it. `docs/server.md` lists it.
"""

import re
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from specchat.errors import SpecchatError
from specchat.server.absent_endpoints import why_absent
from specchat.server.api_errors import BAD_REQUEST, NOT_FOUND, ApiError, body_for
from specchat.server.chat_completions import chat_completions, count_chat_tokens
from specchat.server.guard import Access, Guard
from specchat.server.messages_api import count_tokens, messages
from specchat.server.metrics import dashboard, metrics
from specchat.server.native_completions import completion, infill
from specchat.server.replies import error_to
from specchat.server.responses_api import count_input_tokens, responses
from specchat.server.server_facts import props, slots
from specchat.server.service import Service
from specchat.server.text_completions import completions
from specchat.server.token_tools import apply_template, detokenize, tokenize

GET, POST = ["GET"], ["POST"]
WRONG_METHOD = 405
VERSIONS = re.compile(r"^(/v1)+(?=/|$)")
"""What base URLs end in or not, and clients add or not; some do both."""


def make_app(service: Service, access: Access) -> ASGIApp:
    """Return the ASGI application of a service, for whom `access` allows."""
    routes = [
        Route("/", health, methods=["GET", "HEAD"]),
        Route("/health", health, methods=["GET", "HEAD"]),
        Route("/props", props, methods=GET),
        Route("/slots", slots, methods=GET),
        Route("/metrics", metrics, methods=GET),
        Route("/grafana.json", dashboard, methods=GET),
        Route("/models", models, methods=GET),
        Route("/models/{name:path}", model, methods=GET),
        Route("/chat/completions", chat_completions, methods=POST),
        Route("/chat/completions/input_tokens", count_chat_tokens, methods=POST),
        Route("/completions", completions, methods=POST),
        Route("/responses", responses, methods=POST),
        Route("/responses/input_tokens", count_input_tokens, methods=POST),
        Route("/messages", messages, methods=POST),
        Route("/messages/count_tokens", count_tokens, methods=POST),
        Route("/completion", completion, methods=POST),
        Route("/infill", infill, methods=POST),
        Route("/tokenize", tokenize, methods=POST),
        Route("/detokenize", detokenize, methods=POST),
        Route("/apply-template", apply_template, methods=POST),
    ]
    handlers: Any = {
        ApiError: _refused,
        SpecchatError: _refused,
        HTTPException: _refused,
        ClientDisconnect: _gone,
        Exception: _refused,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.service = service
    return _with_plain_paths(Guard(app, access))


def _with_plain_paths(app: ASGIApp) -> ASGIApp:
    """Return an application that sees paths without `/v1`, double slashes and one at the end."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = "/" + re.sub("/+", "/", scope["path"]).strip("/")
            scope = {**scope, "path": VERSIONS.sub("", path) or "/"}
        await app(scope, receive, send)

    return call


async def health(request: Request) -> Response:
    """Say that the server is there."""
    del request
    return JSONResponse({"status": "ok"})


async def models(request: Request) -> Response:
    """List the names of the loaded pair, in a form for clients of OpenAI and of Anthropic."""
    service: Service = request.app.state.service
    names = service.model_names()
    listed = [_model(service, name) for name in names]
    ends = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
    return JSONResponse({"object": "list", "data": listed, **ends})


async def model(request: Request) -> Response:
    """Describe the pair under one of its names."""
    service: Service = request.app.state.service
    name = request.path_params["name"]
    if name not in service.model_names():
        raise service.unknown_model(name)
    return JSONResponse(_model(service, name))


def _model(service: Service, name: str) -> dict[str, Any]:
    facts = service.facts
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "lifecycle": "active",
        "created": service.created,
        "created_at": datetime.fromtimestamp(service.created, UTC).isoformat(),
        "owned_by": "specchat",
        "max_model_len": facts.context,
        "context_length": facts.context,
        "max_input_tokens": facts.context,
        "max_tokens": facts.context,
        "architecture": {
            "input_modalities": ["text", "image"] if facts.takes_images else ["text"],
            "output_modalities": ["text"],
        },
        "meta": {
            "target": facts.target,
            "draft": facts.draft,
            "n_ctx": facts.context,
            "size": facts.target_file_bytes,
            "speculation_off_reason": facts.speculation_off_reason,
            "draft_off_reason": facts.draft_off_reason,
            "thinking": list(facts.thinking),
        },
    }


async def _gone(request: Request, raised: Exception) -> Response:
    """Return a reply to a client that left before its request was complete; it is not sent."""
    del request, raised
    return Response(status_code=BAD_REQUEST)


async def _refused(request: Request, raised: Exception) -> Response:
    """Return an error in the shape of the API that was called."""
    if isinstance(raised, HTTPException):
        headers = raised.headers or {}
        error = ApiError(raised.status_code, raised.detail, headers=headers)
        if raised.status_code == NOT_FOUND:
            called = request.scope["raw_path"].decode("latin-1")
            error = why_absent(request.scope["path"], called)
        if raised.status_code == WRONG_METHOD:
            error.message = f"{request.method} is not possible here: use {headers.get('Allow')}"
    else:
        error = error_to(request.scope, raised)
    body = body_for(request.url.path)(error)
    return JSONResponse(body, error.status, dict(error.headers))
