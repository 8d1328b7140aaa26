"""Stopping llama.cpp's encoder of images in the middle: it knows no abort flag."""

from _thread import start_new_thread
from collections.abc import Callable
from threading import Event, Lock

from specchat.errors import Cancelled
from specchat.llama.library import STOPPED, AbortFlag, api

NODES_AT_ONCE = 32
"""The nodes of the encoder's graph between two looks at the flag; large ones have a thousand."""

SECONDS_BETWEEN = 0.2


class EncoderStop:
    """Stops an encoder once a flag is set.

    llama.cpp asks the `callback` before it computes a node whether it wants to see the result. If
    so, it asks again after that node, and goes on only if the answer is yes.
    """

    def __init__(self, abort: AbortFlag) -> None:
        """Prepare for one encoder, which must be made with the `callback`."""
        self.callback = api.ggml_backend_sched_eval_callback(self._look)
        self._abort = abort
        self._num_nodes = 0
        self._is_given_up = self._is_cut = False

    def run(self, encode: Callable[[], int]) -> int:
        """Return what the encoder returns. Raises Cancelled if it was stopped.

        It runs in a thread of its own: in the main thread Ctrl+C would be raised inside the
        callback, where it is lost.
        """
        results: list[int] = []
        is_over, once = Event(), Lock()
        interrupt: BaseException | None = None
        self._is_given_up = self._is_cut = False

        def work() -> None:
            if not once.acquire(blocking=False):
                return
            try:
                if not self._is_given_up:
                    results.append(encode())
            finally:
                is_over.set()

        is_asked = False
        while not is_over.is_set():  # its memory is freed after that, however often Ctrl+C comes
            try:
                if not is_asked:
                    is_asked = True
                    start_new_thread(work, ())  # Thread.start would wait for it
                while not is_over.wait(SECONDS_BETWEEN):  # with no limit, Ctrl+C may go unseen
                    pass
            except BaseException as raised:  # noqa: BLE001  # it is raised once that is over
                self._is_given_up, interrupt = True, raised
                if once.acquire(blocking=False):  # it has not begun, and now it never will
                    break
        if interrupt:
            raise interrupt
        if self._is_cut:
            raise Cancelled(STOPPED)
        return results[0]

    def _look(self, _tensor: int, is_question: bool, _: object) -> bool:
        if is_question:
            self._num_nodes += 1
            return self._is_cut or not self._num_nodes % NODES_AT_ONCE
        self._is_cut = self._is_cut or self._is_given_up or self._abort.is_set()
        return not self._is_cut
