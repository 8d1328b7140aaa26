"""Requests to one server from any thread, each of which can be given up at any moment."""

import json
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from specchat import __version__
from specchat.connection.address import ServerAddress
from specchat.connection.server_errors import (
    CONNECT_SECONDS,
    SILENT_SECONDS,
    not_an_api,
    refused,
    unreachable,
)
from specchat.errors import ServerFailed
from specchat.network.keep_alive import keep_alive_options
from specchat.network.proxies import NetworkMisconfigured

if TYPE_CHECKING:  # slow to import
    import httpx2

    from specchat.network.web_client import Request, WebClient

LARGEST_BODY = 1 << 24
"""The most bytes of an answer that is not a stream; a larger one is not what was asked for."""
MOST_WAITING, WAIT_SECONDS = 1 << 22, 0.01
"""Characters of events that may wait to be read, and how often their reader is looked at."""
LOW_LEVEL = (OSError, ValueError, OverflowError)
"""What a connection may raise besides the client's own errors, such as for a wrong proxy."""
ASIDE_SECONDS = 5.0
"""How long a request made alongside answers, such as one for metrics, may take."""


class HttpSession:
    """Connections to a server, kept open between requests. Close it at the end."""

    def __init__(self, address: ServerAddress) -> None:
        """Begin without a connection; nothing is sent yet."""
        self.address = address
        self.on_wait: Callable[[], None] | None = None
        """Called several times a second while `get` or `post` waits; what it raises ends that."""
        from specchat.network.web_client import ClientPool

        self._pool = ClientPool(self._client)

    def get(self, path: str, seconds: float = ASIDE_SECONDS) -> Any:
        """Return the JSON at a path. Raises ServerFailed."""
        return _decoded(self._whole("GET", path, None, seconds).wait(self.on_wait), self.address)

    def get_text(self, path: str) -> str:
        """Return the text at a path. Raises ServerFailed."""
        return self.ask_text(path).text(self.on_wait)

    def ask_text(self, path: str) -> "PendingAnswer":
        """Ask for the text at a path without waiting for it."""
        return self._whole("GET", path, None, ASIDE_SECONDS)

    def post(self, path: str, body: Any, seconds: float = ASIDE_SECONDS) -> Any:
        """Send JSON and return the JSON that comes back. Raises as `refused` returns."""
        return _decoded(self._whole("POST", path, body, seconds).wait(self.on_wait), self.address)

    def stream(self, path: str, body: Any) -> "ServerEvents":
        """Send JSON and return the events that come back."""
        from specchat.network.web_client import Request

        stream = ServerEvents()
        stream.request = Request(self._pool, partial(self._read_events, path, body, stream))
        return stream

    def close(self) -> None:
        """End all requests and close the connections; closing twice does nothing."""
        self._pool.close()

    def _client(self) -> "WebClient":
        from specchat.network.web_client import WebClient

        address = self.address
        headers = {"User-Agent": f"specchat/{__version__}", "Accept-Encoding": "identity"}
        if address.key:
            headers["Authorization"] = f"Bearer {address.key}"
        if address.unix_path:
            return WebClient(headers, uds=address.unix_path)
        options = keep_alive_options(may_read_late=True)
        return WebClient(headers, socket_options=options, retries=1)  # of connecting alone

    def _sent(
        self, client: "WebClient", method: str, path: str, body: Any, seconds: float
    ) -> "AbstractContextManager[httpx2.Response]":
        """Send a request whose answer may be silent for `seconds`."""
        import httpx2

        timeout = httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        given: dict[str, Any] = {}
        if body is not None:  # in ASCII, for which lone surrogates are no problem
            given["content"] = json.dumps(body).encode()
            given["headers"] = {"Content-Type": "application/json"}
        return client.stream(method, self.address.base + path, timeout=timeout, **given)

    def _whole(self, method: str, path: str, body: Any, seconds: float) -> "PendingAnswer":
        from specchat.network.web_client import Request

        def read(client: "WebClient") -> bytes:
            with self._sent(client, method, path, body, seconds) as response:
                content = _read(response)
            if response.status_code >= 300:
                raise refused(response, content, self.address)
            return content

        return PendingAnswer(Request(self._pool, read), self.address, seconds)

    def _read_events(
        self, path: str, body: Any, stream: "ServerEvents", client: "WebClient"
    ) -> None:
        """Put the data of each event into a stream, and finally an error or None."""
        import httpx2

        end: BaseException | None = None
        has_begun = False
        try:
            with self._sent(client, "POST", path, body, SILENT_SECONDS) as response:
                kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                if response.status_code >= 300:
                    end = refused(response, _read(response), self.address)
                elif kind == "application/json":  # some do not stream, or answer errors with 200
                    stream.put(_read(response).decode("utf-8", "replace"))
                elif kind != "text/event-stream":
                    end = not_an_api(self.address, f"with {kind or 'no content type'}")
                else:
                    for event in httpx2.EventSource(response):
                        has_begun = True
                        is_error = event.event == "error" and '"error"' not in event.data
                        data = json.dumps({"error": event.data}) if is_error else event.data
                        stream.put(data)
        except (httpx2.HTTPError, httpx2.InvalidURL, *LOW_LEVEL) as error:
            end = unreachable(error, self.address, SILENT_SECONDS, has_begun=has_begun)
        except NetworkMisconfigured as error:
            end = ServerFailed(str(error))
        except BaseException as error:  # noqa: BLE001 -- raised where the events are read
            end = error
        finally:
            stream.end(end)


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """A request that was sent and is not awaited yet; it may take `seconds` in all."""

    _request: "Request[bytes]"
    _address: ServerAddress
    _seconds: float

    @property
    def is_done(self) -> bool:
        """Whether the answer has arrived, or the request has failed."""
        return self._request.is_done

    def wait(self, on_wait: Callable[[], None] | None = None) -> bytes:
        """Wait for the answer and return it. Raises ServerFailed, and what `on_wait` raises."""
        import httpx2

        try:
            return self._request.result(self._seconds, on_wait)
        except CancelledError:
            raise ServerFailed("the request was given up") from None
        except NetworkMisconfigured as error:
            raise ServerFailed(str(error)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, *LOW_LEVEL) as error:
            raise unreachable(error, self._address, self._seconds) from error

    def text(self, on_wait: Callable[[], None] | None = None) -> str:
        """Wait for the answer and return it as text. Raises as `wait` does."""
        return self.wait(on_wait).decode("utf-8", "replace")

    def cancel(self) -> None:
        """Give the request up."""
        self._request.give_up()


class ServerEvents:
    """The events of one answer, as the texts of their data."""

    def __init__(self) -> None:
        """Begin before the request is made."""
        self.request: Request[None] | None = None
        self._deadline: float | None = None
        self._arrived: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
        self._num_put = self._num_taken = 0
        """Characters, each counted by one thread."""
        self._is_cancelled = False

    @property
    def num_waiting(self) -> int:
        """How many characters have arrived and were not read yet."""
        return self._num_put - self._num_taken

    def put(self, data: str) -> None:
        """Add an event, once there is room for it: a server may be faster than its reader."""
        while self.num_waiting > MOST_WAITING and not self._is_cancelled:
            sleep(WAIT_SECONDS)
        self._num_put += len(data)
        self._arrived.put(data)

    def end(self, error: BaseException | None) -> None:
        """End the events, with an error or without."""
        self._arrived.put(error)

    def limit(self, seconds: float) -> None:
        """End the events this many seconds after the first such call."""
        if self._deadline is None:
            self._deadline = monotonic() + seconds

    def cancel(self) -> None:
        """Give the request up, from any thread: the events end, and the connection is closed."""
        self._is_cancelled = True
        if self.request is not None:
            self.request.give_up()
        self._arrived.put(None)

    def __iter__(self) -> Iterator[str]:
        """Yield the data of each event until the end, or until the request is given up.

        Raises the error that the request failed with.
        """
        while not self._is_cancelled:
            left = None if self._deadline is None else self._deadline - monotonic()
            try:
                arrived = self._arrived.get(timeout=left and max(left, 0.0))
            except queue.Empty:
                return
            if left is not None and left <= 0:
                return
            if self._is_cancelled:  # what arrived may be an error that the cut made
                return
            if arrived is None:
                return
            if isinstance(arrived, BaseException):
                raise arrived
            self._num_taken += len(arrived)
            yield arrived


def _read(response: "httpx2.Response") -> bytes:
    """Return the body of an answer, cut off where it is far too long."""
    content = b""
    for part in response.iter_bytes():
        content += part
        if len(content) > LARGEST_BODY:
            break
    return content[:LARGEST_BODY]


def _decoded(content: bytes, address: ServerAddress) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise not_an_api(address, "with something that is not JSON") from None
