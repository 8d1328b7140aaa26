"""Messages for what can go wrong with a server: what happened, and what to do."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specchat.connection.address import ServerAddress
from specchat.errors import ContextFull, InvalidOption, ServerFailed, SpecchatError
from specchat.network.network_errors import (
    WEB_PAGE,
    Failure,
    Peer,
    explain_failure,
    failure_of,
    reason,
)
from specchat.network.proxies import find_proxy
from specchat.safe_text import in_one_line

if TYPE_CHECKING:  # slow to import
    import httpx2

LONGEST_SHOWN = 300
CONNECT_SECONDS = 10.0
"""How long a server may take to accept a connection."""
SILENT_SECONDS = 1800.0
"""How long a server may be silent: a long prompt takes many minutes on a slow machine."""
TOO_LONG = re.compile(
    r"context.{0,20}(length|size|window)|exceed\w*.{0,40}context|too many tokens"
    r"|prompt is too long|maximum context",
    re.IGNORECASE | re.DOTALL,
)
CAPACITY = re.compile(
    r"context (?:length|size|window)\D{0,40}?(\d{1,9})|> (\d{1,9}) maximum", re.IGNORECASE
)
NUMBER = re.compile(r"\d{1,9}")
KEYS = (401, 403)
ABSENT, TOO_MANY, LOADING = 404, 429, 503
BAD = (400, 413, 422)
REDIRECTS = range(300, 400)


class ServerLoading(ServerFailed):
    """Raised while a server is still loading its model."""


def unreachable(
    error: Exception, address: ServerAddress, seconds: float, *, has_begun: bool = False
) -> ServerFailed:
    """Return the error for a request that brought no answer, or only a part of one.

    The server was given `seconds` for the next byte.
    """
    import httpx2

    where, why, proxy = address.shown, reason(error), find_proxy(address.base)
    if isinstance(error, httpx2.SSEError):
        return ServerFailed(f"{where} sent an event that is too large: see the server's log")
    match failure_of(error):
        case Failure.SILENT:
            is_quiet = isinstance(error, httpx2.ReadTimeout)
            how = "sent nothing for" if is_quiet else "did not answer within"
            text = f"{where} {how} {seconds:.0f} s: it hangs, or is overloaded"
        case Failure.LOST | Failure.NOT_HTTP | Failure.UNREACHABLE if has_begun:
            text = f"{where} ended the answer early ({why}): its log may say why; try again"
        case _:
            peer = Peer(
                where,
                if_unreachable="check that the server runs, its address, and its firewall",
                if_untrusted="set SSL_CERT_FILE to the file of its certificate, or use ssh",
                if_not_tls="is its address http:// instead of https://?",
            )
            text = explain_failure(error, peer, proxy) or f"{where}: {why}: check the address"
    return ServerFailed(text)


def refused(response: "httpx2.Response", body: bytes, address: ServerAddress) -> SpecchatError:
    """Return the error for an answer with a status of 300 or more."""
    where, status = address.shown, response.status_code
    said, kind = message_of(body)
    quoted = f": {said}" if said else ""
    if WEB_PAGE.match(body) and status not in {*KEYS, *REDIRECTS}:
        return not_an_api(address, f"with a web page and status {status}")
    if status in BAD:
        if is_too_long(said, kind):
            return _too_long(said, body)
        return InvalidOption(f"{where} refused the request{quoted or f' (status {status})'}")
    if status == LOADING and "load" in said.lower():
        return ServerLoading(f"{where} is still loading its model: try again in a moment")
    location = in_one_line(response.headers.get("Location", ""))[:LONGEST_SHOWN]
    key = f"needs a key{f' ({said})' if said else ''}: set {address.key_place}"
    if address.key:
        key = f"rejected the key from {address.key_place}{quoted}"
    texts = {
        **dict.fromkeys(REDIRECTS, f"moved to {location or 'an unknown place'}: use that address"),
        **dict.fromkeys(KEYS, key),
        ABSENT: f"does not know this model or endpoint{quoted}; choose another model with"
        " --served-model, or check the address",
        TOO_MANY: f"has too much to do{quoted}; {_later(response)}",
        LOADING: f"cannot answer now{quoted}; {_later(response)}",
    }
    other = f"failed with status {status}{quoted}; see the server's log"
    return ServerFailed(f"{where} {texts.get(status, other)}")


def is_too_long(said: str, kind: str) -> bool:
    """Return True for an error's message and type that say that a prompt does not fit."""
    return kind == "exceed_context_size_error" or bool(TOO_LONG.search(said))


def not_an_api(address: ServerAddress, how: str) -> ServerFailed:
    """Return the error for an answer that does not come from an OpenAI-compatible API."""
    return ServerFailed(
        f"{address.shown} answered {how}, not like an OpenAI-compatible API: check the address, and"
        " whether a proxy or a login page is in the way"
    )


def failure_in_stream(event: Any, address: ServerAddress) -> SpecchatError | None:
    """Return the error that an event of a stream reports; None if it reports none."""
    if not isinstance(event, Mapping):
        return None
    if not event.get("error") and not event.get("error_message") and event.get("object") != "error":
        return None
    said, kind = message_of(json.dumps(event).encode())
    if is_too_long(said, kind):
        return _too_long(said, json.dumps(event).encode())
    return ServerFailed(f"{address.shown} failed: {said or 'it gave no reason'}")


def message_of(body: bytes) -> tuple[str, str]:
    """Return the message and the type of an error, as servers write it; "" for what is missing."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        text = "" if WEB_PAGE.match(body) else body[:LONGEST_SHOWN].decode("utf-8", "replace")
        return in_one_line(text).strip(), ""
    error = content.get("error", content) if isinstance(content, Mapping) else content
    if isinstance(error, str):
        return _short(error), ""
    if not isinstance(error, Mapping):
        return "", ""
    texts = (error.get("message"), error.get("detail"), content.get("message"))
    text = next((message for message in (*texts, content.get("error_message")) if message), "")
    return _short(text if isinstance(text, str) else json.dumps(text)), str(error.get("type", ""))


def _too_long(said: str, body: bytes) -> ContextFull:
    """Return the error for a prompt that does not fit, with its numbers if they are known."""
    error = ContextFull(f"the conversation does not fit the server's context: {said}")
    try:
        content = json.loads(body)
        fields = content.get("error", content)
        error.num_tokens, error.capacity = int(fields["n_prompt_tokens"]), int(fields["n_ctx"])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        capacity = CAPACITY.search(said)
        if capacity:
            error.capacity = int(capacity[1] or capacity[2])
            numbers = [int(number) for number in NUMBER.findall(said)]
            error.num_tokens = max(number for number in numbers if number >= error.capacity)
    return error


def _later(response: "httpx2.Response") -> str:
    seconds = response.headers.get("Retry-After", "")
    is_number = seconds.isascii() and seconds.isdigit() and len(seconds) < 6
    return f"try again in {seconds} s" if is_number else "try again in a moment"


def _short(text: str) -> str:
    shown = in_one_line(text).strip().rstrip(".")
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"
