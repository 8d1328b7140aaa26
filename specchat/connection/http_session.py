"""Requests to one server from any thread, each of which can be given up at any moment.

They are made on an event loop of their own, because only there a request that waits for bytes can
be ended from outside; closing a socket under a thread that reads it does not wake that thread.
"""

import asyncio
import json
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from specchat import __version__
from specchat.connection.address import ServerAddress, proxy_for
from specchat.connection.server_errors import (
    CONNECT_SECONDS,
    SILENT_SECONDS,
    not_an_api,
    refused,
    unreachable,
    unusable,
)
from specchat.errors import ServerFailed, SpecchatError
from specchat.network.certificates import trusted_context
from specchat.network.keep_alive import keep_alive_options
from specchat.network.proxies import NetworkMisconfigured

if TYPE_CHECKING:  # slow to import
    import httpx2

Result = TypeVar("Result")
LARGEST_BODY = 1 << 24
"""The most bytes of an answer that is not a stream; a larger one is not what was asked for."""
MOST_WAITING, WAIT_SECONDS = 1 << 22, 0.01
"""Characters of events that may wait to be read, and how often their reader is looked at."""
LOW_LEVEL = (OSError, ValueError, OverflowError, ExceptionGroup)
"""What a connection may raise besides the client's own errors, such as for a wrong proxy."""
ON_WAIT_SECONDS = 0.2
ASIDE_SECONDS = 5.0
"""How long a request made alongside answers, such as one for metrics, may take."""


class HttpSession:
    """Connections to a server, kept open between requests. Close it at the end."""

    def __init__(self, address: ServerAddress) -> None:
        """Start the thread of the event loop; nothing is sent yet."""
        self.address = address
        self.on_wait: Callable[[], None] | None = None
        """Called several times a second while `get` or `post` waits; what it raises ends that."""
        self._client: httpx2.AsyncClient | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="connection", daemon=True
        )
        self._thread.start()

    def get(self, path: str, seconds: float = ASIDE_SECONDS) -> Any:
        """Return the JSON at a path. Raises ServerFailed."""
        return _decoded(self._wait(self._whole("GET", path, None, seconds)), self.address)

    def get_text(self, path: str) -> str:
        """Return the text at a path. Raises ServerFailed."""
        return self._wait(self._whole("GET", path, None, ASIDE_SECONDS)).decode("utf-8", "replace")

    def ask_text(self, path: str) -> "PendingText":
        """Ask for the text at a path without waiting for it."""
        return PendingText(self._submit(self._whole("GET", path, None, ASIDE_SECONDS)))

    def post(self, path: str, body: Any, seconds: float = ASIDE_SECONDS) -> Any:
        """Send JSON and return the JSON that comes back. Raises as `refused` returns."""
        return _decoded(self._wait(self._whole("POST", path, body, seconds)), self.address)

    def stream(self, path: str, body: Any) -> "ServerEvents":
        """Send JSON and return the events that come back."""
        stream = ServerEvents(self.address)
        stream.work = self._submit(self._events(path, body, stream))
        return stream

    def close(self) -> None:
        """End all requests and close the connections; closing twice does nothing."""
        if not self._thread.is_alive():
            return
        with suppress(Exception):  # the connections may be lost
            self._submit(self._end()).result(ASIDE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ASIDE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = self._submit(work)
        try:
            while self.on_wait is not None and not wait([future], ON_WAIT_SECONDS).done:
                self.on_wait()
            return future.result()
        except BaseException:  # Ctrl+C too
            future.cancel()
            raise

    def _connected(self) -> "httpx2.AsyncClient":
        """Return the client, made at the first request, where it belongs to the loop."""
        import httpx2

        if self._client is None:
            address = self.address
            headers = {"User-Agent": f"specchat/{__version__}", "Accept-Encoding": "identity"}
            if address.key:
                headers["Authorization"] = f"Bearer {address.key}"
            options = None if address.unix_path else keep_alive_options(may_read_late=True)
            has_tls = not address.base.startswith("http:")  # loading certificates takes long
            proxy = proxy_for(address)
            try:
                transport = httpx2.AsyncHTTPTransport(
                    verify=trusted_context() if has_tls else False,
                    uds=address.unix_path or None,
                    proxy=proxy.checked() if proxy else None,
                    socket_options=options,
                    retries=1,  # of connecting alone
                )
            except NetworkMisconfigured as error:
                raise ServerFailed(str(error)) from None
            except (ValueError, ImportError, OSError) as error:
                raise unusable(error, address) from None
            timeout = httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
            self._client = httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport)
        return self._client

    def _request(self, method: str, path: str, body: Any, seconds: float | None) -> Any:
        import httpx2

        usual = httpx2.USE_CLIENT_DEFAULT
        timeout = usual if seconds is None else httpx2.Timeout(seconds)
        url = self.address.base + path
        given: dict[str, Any] = {}
        if body is not None:  # in ASCII, for which lone surrogates are no problem
            given["content"] = json.dumps(body).encode()
            given["headers"] = {"Content-Type": "application/json"}
        return self._connected().stream(method, url, timeout=timeout, **given)

    async def _whole(self, method: str, path: str, body: Any, seconds: float) -> bytes:
        import httpx2

        try:
            async with (
                asyncio.timeout(seconds),
                self._request(method, path, body, seconds) as response,
            ):
                content = await _read(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, *LOW_LEVEL) as error:
            raise unreachable(error, self.address, seconds) from error
        if response.status_code >= 300:
            raise refused(response, content, self.address)
        return content

    async def _events(self, path: str, body: Any, stream: "ServerEvents") -> None:
        """Put the data of each event into a stream, and finally an error or None."""
        import httpx2

        end: SpecchatError | None = None
        has_begun = False
        try:
            async with self._request("POST", path, body, None) as response:
                kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                if response.status_code >= 300:
                    end = refused(response, await _read(response), self.address)
                elif kind == "application/json":  # some do not stream, or answer errors with 200
                    await stream.put((await _read(response)).decode("utf-8", "replace"))
                elif kind != "text/event-stream":
                    end = not_an_api(self.address, f"with {kind or 'no content type'}")
                else:
                    async for event in httpx2.EventSource(response):
                        has_begun = True
                        is_error = event.event == "error" and '"error"' not in event.data
                        data = json.dumps({"error": event.data}) if is_error else event.data
                        await stream.put(data)
        except (httpx2.HTTPError, httpx2.InvalidURL, *LOW_LEVEL) as error:
            end = unreachable(error, self.address, SILENT_SECONDS, has_begun=has_begun)
        except ServerFailed as error:  # before anything is sent
            end = error
        finally:
            stream.end(end)


@dataclass(frozen=True, slots=True)
class PendingText:
    """The text of a request that was sent and is not awaited yet."""

    _work: Future[bytes]

    @property
    def is_done(self) -> bool:
        """Whether it has arrived, or the request has failed."""
        return self._work.done()

    def result(self) -> str:
        """Wait for the text and return it. Raises ServerFailed."""
        try:
            return self._work.result().decode("utf-8", "replace")
        except CancelledError:
            raise ServerFailed("the request was given up") from None

    def cancel(self) -> None:
        """Give the request up."""
        self._work.cancel()


class ServerEvents:
    """The events of one answer, as the texts of their data."""

    def __init__(self, address: ServerAddress) -> None:
        self.work: Future[None] | None = None
        self._deadline: float | None = None
        self._address = address
        self._arrived: queue.SimpleQueue[str | SpecchatError | None] = queue.SimpleQueue()
        self._num_waiting = 0
        self._is_cancelled = False

    async def put(self, data: str) -> None:
        """Add an event, once there is room for it: a server may be faster than its reader."""
        while self._num_waiting > MOST_WAITING:  # noqa: ASYNC110  # another thread reads
            await asyncio.sleep(WAIT_SECONDS)
        self._num_waiting += len(data)
        self._arrived.put(data)

    def end(self, error: SpecchatError | None) -> None:
        """End the events, with an error or without."""
        self._arrived.put(error)

    def limit(self, seconds: float) -> None:
        """End the events this many seconds after the first such call."""
        if self._deadline is None:
            self._deadline = monotonic() + seconds

    def cancel(self) -> None:
        """Give the request up, from any thread: the events end, and the connection is closed."""
        self._is_cancelled = True
        if self.work is not None:
            self.work.cancel()
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
            if self._is_cancelled:
                return
            if arrived is None:
                self._raise_bug()
                return
            if isinstance(arrived, SpecchatError):
                raise arrived
            self._num_waiting -= len(arrived)
            yield arrived

    def _raise_bug(self) -> None:
        """Raise what the request ended with, if that is an error of specchat's own."""
        if self.work is not None:
            with suppress(CancelledError):
                self.work.result()


async def _read(response: "httpx2.Response") -> bytes:
    """Return the body of an answer, cut off where it is far too long."""
    content = b""
    async for part in response.aiter_bytes():
        content += part
        if len(content) > LARGEST_BODY:
            break
    return content[:LARGEST_BODY]


def _decoded(content: bytes, address: ServerAddress) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise not_an_api(address, "with something that is not JSON") from None
