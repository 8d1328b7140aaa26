"""The constraint of an answer that goes through phases.

In some phases any text may come until a mark is written; in others a constraint says what may come.
A mark may be a token of its own or be spread over several, and the token that completes it may
bring text of the next phase along: where that phase refuses the text, the token is not allowed, so
no part of an answer is left without its constraint.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from specchat.constraints.phases import Constrained, Free, Phase, marks_of
from specchat.decoding.constraint import Constraint, Mask
from specchat.errors import EngineFailed, InvalidOption

NEWLINE = b"\n"


class Texts(Protocol):
    """What is known of a vocabulary's texts."""

    @property
    def size(self) -> int:
        """The number of tokens."""

    @property
    def end_tokens(self) -> Collection[int]:
        """The tokens that end an answer."""

    def piece(self, token: int, /) -> bytes:
        """Return the bytes of a token, the name of a special one."""

    def containing(self, byte: int, /) -> Sequence[int]:
        """Return the tokens whose bytes contain this one."""

    def tokenize(self, text: str, /) -> Sequence[int]:
        """Return the tokens of a text that follows another one."""


class _ConstrainedText:
    """The text of one phase with a constraint, which has followed `length` of its tokens."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.length = 0

    def push(self, token: int) -> None:
        self.constraint.push(token)
        self.length += 1

    def shorten(self, length: int) -> None:
        """Take back what follows this many tokens; with nothing to take back, clear errors."""
        self.constraint.pop(self.length - length)
        self.length = length


class _State(NamedTuple):
    """How far an answer has come behind one of its tokens.

    `matched` is the end of the answer where that may be the beginning of a mark, and `newlines`
    line breaks came before the phase's text. In a phase with a constraint, `length` tokens of its
    text are written.
    """

    phase: str
    matched: bytes = b""
    newlines: int = 0
    text: _ConstrainedText | None = None
    length: int = 0


class _Step(NamedTuple):
    """What a token does: it leads to a phase, whose constraint then follows `tokens`.

    They differ from the token itself where that also completes a mark. If `begins`, the phase's
    text begins anew; else it goes on.
    """

    phase: str
    matched: bytes = b""
    newlines: int = 0
    tokens: Sequence[int] = ()
    begins: bool = True


class PhasedConstraint:
    """A Constraint that goes through phases, by name, from the first one on."""

    def __init__(
        self, phases: Mapping[str, Phase], texts: Texts, ends: Collection[int] = ()
    ) -> None:
        """Begin with the first phase; `texts` are the vocabulary's.

        `ends` are tokens that end the answer beside those of the vocabulary: only the chat format
        knows them, and the constraints of phases do not.
        """
        self._phases = phases
        self._texts = texts
        self._ends = frozenset(texts.end_tokens) | frozenset(ends)
        self._further_ends = sorted(self._ends - frozenset(texts.end_tokens))
        self._marks = {name: marks_of(phase) for name, phase in phases.items()}
        self._masks: dict[tuple[str, bytes, int], Mask | None] = {}
        self._probes: dict[str, Constraint] = {}
        self._states: list[_State] = []
        self._take(_Step(next(iter(phases))))

    def mask(self) -> Mask | None:
        """Return the tokens that may come next, None if all may. It may be kept."""
        if text := self._text():
            return self._with_further_ends(text.constraint.mask())
        # until a constraint alone decides, the mask depends on nothing that was written before
        state = self._states[-1]
        key = (state.phase, state.matched, state.newlines)
        if key not in self._masks:
            self._masks[key] = self._shared_mask(state)
        return self._masks[key]

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice."""
        text = self._text()
        return text.constraint.forced() if text else ()

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""
        is_text = 0 <= token < self._texts.size and token not in self._ends
        step = self._step(token) if is_text else None
        if step is None:
            raise InvalidOption(
                f"token {token} is not allowed after {len(self._states) - 1} others"
            )
        self._take(step)

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back."""
        del self._states[len(self._states) - count :]
        state = self._states[-1]
        if state.text:
            state.text.shorten(state.length)

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""
        text = self._text()
        return text is not None and text.constraint.is_over

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        state = self._states[-1]
        phase = self._phases[state.phase]
        if isinstance(phase, Free):
            return phase.may_end
        return not state.matched and _text_of(state).constraint.is_complete

    def _text(self) -> _ConstrainedText | None:
        """Return the text whose constraint alone says what may come next, if there is one."""
        state = self._states[-1]
        phase = self._phases[state.phase]
        if isinstance(phase, Free):
            return None
        is_waiting = state.newlines < phase.newlines or bool(phase.openings)
        return None if is_waiting and not state.length else _text_of(state)

    def _take(self, step: _Step) -> None:
        """Go where a step leads."""
        phase, text = self._phases[step.phase], None
        if isinstance(phase, Constrained):
            text = _ConstrainedText(phase.start()) if step.begins else _text_of(self._states[-1])
            for token in step.tokens:
                text.push(token)
            if step.tokens and phase.then and text.constraint.is_over:
                self._take(_Step(phase.then))
                return
        length = text.length if text else 0
        self._states.append(_State(step.phase, step.matched, step.newlines, text, length))

    def _step(self, token: int) -> _Step | None:
        """Return what a token does here; None if it is not allowed."""
        state = self._states[-1]
        phase = self._phases[state.phase]
        piece = self._texts.piece(token)
        if isinstance(phase, Free):
            return self._reading(state.phase, state.matched, piece)
        is_text = not state.matched and _allows(_text_of(state).constraint, token)
        if self._text() or is_text:  # its push says whether the constraint that decides allows it
            return _Step(state.phase, newlines=state.newlines, tokens=(token,), begins=False)
        return self._before_text(state, phase, piece)

    def _before_text(self, state: _State, phase: Constrained, piece: bytes) -> _Step | None:
        """Return what bytes do that come before a constraint's text or in its place."""
        num_newlines = state.newlines + len(piece)
        is_newline = bool(piece) and not piece.strip(NEWLINE)
        if is_newline and not state.matched and num_newlines <= phase.newlines:
            return _Step(state.phase, newlines=num_newlines, begins=False)
        text = state.matched + piece
        for opening, following in self._marks[state.phase].items():
            if piece and text.startswith(opening):
                return self._reading(following, b"", text[len(opening) :])
            if piece and opening.startswith(text):
                return _Step(state.phase, text, state.newlines, begins=False)
        return None

    def _reading(self, name: str, matched: bytes, data: bytes) -> _Step | None:
        """Return what bytes do at the beginning of a phase, or within one of any text."""
        phase, marks = self._phases[name], self._marks[name]
        if isinstance(phase, Constrained):
            return self._beginning(name, phase, data)
        if phase.otherwise:
            return self._reading_first(name, phase, (matched + data).lstrip())
        for index, byte in enumerate(data):
            matched += bytes((byte,))
            if mark := next((mark for mark in marks if matched.endswith(mark)), None):
                return self._reading(marks[mark], b"", data[index + 1 :])
            # the longest end of the text that may still become a mark
            while matched and not any(mark.startswith(matched) for mark in marks):
                matched = matched[1:]
        return _Step(name, matched)

    def _reading_first(self, name: str, phase: Free, text: bytes) -> _Step | None:
        """Return what comes of a phase's whole text where marks count at its beginning only."""
        for mark, following in self._marks[name].items():
            if text.startswith(mark):
                return self._reading(following, b"", text[len(mark) :])
            if mark.startswith(text):
                return _Step(name, text)
        return _Step(phase.otherwise)

    def _beginning(self, name: str, phase: Constrained, data: bytes) -> _Step | None:
        """Return what bytes do at the beginning of a phase with a constraint.

        Line breaks that the constraint itself allows are part of its text; others may precede it.
        """
        text = data.lstrip(NEWLINE)
        num_newlines = len(data) - len(text)
        for skipped, rest in ((0, data), (num_newlines, text)):
            tokens = self._tokens_of(rest)
            if skipped <= phase.newlines and tokens is not None and self._accepts(name, tokens):
                return _Step(name, newlines=skipped, tokens=tokens)
        return None

    def _tokens_of(self, data: bytes) -> Sequence[int] | None:
        """Return the tokens of a text; None for a part of a character."""
        try:
            return self._texts.tokenize(data.decode()) if data else ()
        except UnicodeDecodeError:
            return None

    def _accepts(self, name: str, tokens: Sequence[int]) -> bool:
        """Return True if these tokens may begin the text of a phase."""
        phase = self._phases[name]
        if not tokens or isinstance(phase, Free):
            return True
        probe = self._probes[name] = self._probes.get(name) or phase.start()
        num_pushed = 0
        try:
            for token in tokens:
                probe.push(token)
                num_pushed += 1
        except InvalidOption:
            return False
        except EngineFailed:
            del self._probes[name]  # it has given up, and would refuse all that is tried next
            return False
        finally:
            probe.pop(num_pushed)
        return True

    def _shared_mask(self, state: _State) -> Mask | None:
        """Return the mask where no constraint alone decides."""
        phase = self._phases[state.phase]
        return self._free_mask(phase) if isinstance(phase, Free) else self._waiting_mask(state)

    def _free_mask(self, phase: Free) -> Mask | None:
        """Return the mask of a text of any kind: only what completes a mark can be refused."""
        last_bytes = {mark[-1] for mark in self._marks[self._states[-1].phase]}
        refused = [token for token in self._with_any(last_bytes) if self._step(token) is None]
        if not refused and phase.may_end:
            return None
        flags = self._flags(None)
        flags[refused] = False
        flags[list(self._ends)] = phase.may_end
        return Mask.where(flags)

    def _waiting_mask(self, state: _State) -> Mask:
        """Return the mask where a constraint's text, a line break or an opening may come."""
        flags = np.zeros(self._texts.size, dtype=np.bool_)
        if not state.matched:
            flags = self._flags(_text_of(state).constraint.mask())
        openings = [mark for mark in self._marks[state.phase] if mark.startswith(state.matched)]
        first_bytes = {mark[len(state.matched)] for mark in openings}
        possible = self._with_any({*first_bytes, *NEWLINE})
        flags[[token for token in possible if self._step(token) is not None]] = True
        flags[self._further_ends] = self.is_complete
        return Mask.where(flags)

    def _with_further_ends(self, mask: Mask | None) -> Mask | None:
        """Return the mask of a constraint, with the further ends where the answer may end."""
        may_end = self.is_complete
        if all((mask is None or mask.allows(end)) == may_end for end in self._further_ends):
            return mask
        flags = self._flags(mask)
        flags[self._further_ends] = may_end
        return Mask.where(flags)

    def _flags(self, mask: Mask | None) -> npt.NDArray[np.bool_]:
        """Return for each token whether a mask allows it, shape (vocabulary,)."""
        size = self._texts.size
        return np.ones(size, dtype=np.bool_) if mask is None else mask.allowed(np.arange(size))

    def _with_any(self, values: Iterable[int]) -> Iterator[int]:
        """Yield the tokens that contain one of these bytes and do not end the answer."""
        tokens = {token for byte in values for token in self._texts.containing(byte)}
        return (token for token in tokens if token not in self._ends)


def _text_of(state: _State) -> _ConstrainedText:
    """Return the text of a phase with a constraint."""
    if state.text is None:
        raise AssertionError(f"the phase {state.phase} has no constraint")
    return state.text


def _allows(constraint: Constraint, token: int) -> bool:
    """Return True if a constraint allows a token next."""
    mask = constraint.mask()
    return mask is None or mask.allows(token)
