"""Evaluates a model as if some layers were left out, without writing a file for each set of layers.

During a pass, llama.cpp shows each result to a callback. To skip a layer, the callback replaces the
layer's output by its input, which gives the same bits as a file without the layer.
"""

import ctypes
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

from specchat.decoding.distribution import Logits
from specchat.errors import SpecchatError
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.llama.native_libraries import ggml_library
from specchat.planning.context_shape import ModelOptions

OUTPUT = "l_out-{}"
"""llama.cpp's name of a layer's result."""
NONE = -2
"""Stands for a layer's number where a result belongs to no layer."""

Text: TypeAlias = tuple[Sequence[int], int]
"""The tokens of a text, and how many of its last tokens count."""


class ForcedTexts(AbstractContextManager["ForcedTexts"]):
    """Texts that a model evaluates in one pass each, giving its logits along them.

    Layer 0 cannot be skipped. At most LONGEST_ROLLBACK tokens of each text may count.
    `texts` may be reduced.
    """

    def __init__(
        self,
        model: Model,
        texts: Sequence[Text],
        options: ModelOptions,
        abort: AbortFlag | None = None,
    ) -> None:
        """Make a context for these texts. Raises as `Context` does."""
        self.texts = texts
        self._skipped: Collection[int] = ()
        self._layers = {OUTPUT.format(n).encode(): n for n in range(model.header.num_layers)}
        self._seen: set[int] = set()
        self._input = ctypes.create_string_buffer(0)
        self._error: BaseException | None = None
        self._hook = api.ggml_backend_sched_eval_callback(self._look)
        longest = max(len(tokens) for tokens, _ in texts)
        own: dict[str, Any] = {"ctx": longest, "batch": longest, "exact": "off"}
        own["rollback_length"] = max(count for _, count in texts)
        self._context = Context(model, replace(options, **own), abort, hook=self._hook)

    def rows(self, skipped: Collection[int] = ()) -> Iterator[Logits]:
        """Yield the row of logits for each counted token, valid until the next one.

        Raises SpecchatError for a model whose layers cannot be skipped, and Cancelled if aborted.
        """
        self._skipped = skipped
        for tokens, count in self.texts:
            self._seen.clear()
            self._input = ctypes.create_string_buffer(0)
            self._context.prefill([])
            logits = self._context.evaluate(tokens[:-1], count)
            if self._error:
                raise self._error
            if not self._seen.issuperset(skipped):
                raise self._refusal()
            yield from logits

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def _look(self, tensor: int, is_question: bool, _: object) -> bool:
        """Say whether to show a result; once shown, keep it or replace it by the layer's input.

        Errors must not propagate through llama.cpp.
        """
        try:
            layer = self._layers.get(_name_of(tensor), NONE)
            if is_question:
                return layer in self._skipped or layer + 1 in self._skipped
            self._replace(tensor, layer)
        except BaseException as error:  # noqa: BLE001
            self._error = error
        return True

    def _refusal(self) -> SpecchatError:
        kind = self._context.model.header.architecture
        return SpecchatError(f"layers of {kind} cannot be skipped: choose another target")

    def _replace(self, tensor: int, layer: int) -> None:
        size = _size_of(tensor)
        self._seen.add(layer)
        if layer in self._skipped and len(self._input) < size:
            raise self._refusal()
        if layer in self._skipped:
            # the last layer computes only the rows that count, which come last
            _write(tensor, ctypes.byref(self._input, len(self._input) - size), 0, size)
        else:
            self._input = ctypes.create_string_buffer(size)
            _read(tensor, self._input, 0, size)


_library: Any = ggml_library("ggml-base")
_name_of, _size_of = _library.ggml_get_name, _library.ggml_nbytes
_read, _write = _library.ggml_backend_tensor_get, _library.ggml_backend_tensor_set
_name_of.argtypes, _name_of.restype = [ctypes.c_void_p], ctypes.c_char_p
_size_of.argtypes, _size_of.restype = [ctypes.c_void_p], ctypes.c_size_t
for _copy in (_read, _write):
    _copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    _copy.restype = None
