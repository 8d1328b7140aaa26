"""What `specchat serve` prints without a screen: a line for each request, in words or as JSON.

No line has a text of a request or an answer.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from specchat.cli.serve_picture import Line, log_line, totals_line
from specchat.cli.terminal import print_json, say

if TYPE_CHECKING:
    from specchat.server.activity import ServedRequest
    from specchat.server.service import Service


class PlainLog:
    """Prints what is served, a line for each request that is over, and the totals at the end.

    They go to stderr; the set-up of a client goes to stdout.
    """

    def __init__(self, service: "Service", header: Sequence[Line], setup: str) -> None:
        """Prepare to follow a service."""
        self._service, self._header, self._setup = service, header, setup

    def __enter__(self) -> Self:
        for line in self._header:
            say(line.text)
        print(self._setup, end="", flush=True)
        self._service.observers.append(self._observe)
        return self

    def __exit__(self, *_: object) -> None:
        self._service.observers.remove(self._observe)
        say(totals_line(self._service.activity.totals()).text)

    def notice(self, line: str) -> None:
        """Print what the user should know, besides requests."""
        say(line)

    def _observe(self, request: "ServedRequest") -> None:
        if request.state == "over":
            say(log_line(request))


class JsonLog:
    """Prints an object on stdout when the server is ready and for each request that is over."""

    def __init__(self, service: "Service", ready: dict[str, Any], end: Callable[[], None]) -> None:
        """Prepare to follow a service; `end` ends the server once its reader is gone."""
        self._service, self._ready, self._end = service, ready, end

    def __enter__(self) -> Self:
        self._print({"event": "ready", **self._ready})
        self._service.observers.append(self._observe)
        return self

    def __exit__(self, *_: object) -> None:
        self._service.observers.remove(self._observe)

    def notice(self, line: str) -> None:
        """Print what the user should know, besides requests, on stderr."""
        say(line)

    def _observe(self, request: "ServedRequest") -> None:
        if request.state == "over":
            self._print(request_record(request))

    def _print(self, record: dict[str, Any]) -> None:
        try:
            print_json(record)
            sys.stdout.flush()
        except OSError:
            self._end()


def request_record(request: "ServedRequest") -> dict[str, Any]:
    """Return the record of a request that is over: its figures as its reply has them.

    Its notices stay with the reply, as they quote the request and the answer.
    """
    from specchat.server.answer_figures import figures_of, usage_of

    figures = figures_of(request)
    figures["specchat"].pop("notices", None)
    return {
        "event": "request",
        "number": request.number,
        "client": request.client,
        "api": request.api,
        "model": request.model,
        "began": request.began,
        "finish": request.finish,
        "usage": usage_of(request.statistics),
        **figures,
    }
