"""Constraints that begin later: after the reasoning, or at the mark of a tool call.

An answer goes through phases. In some, any text may come until a mark is written; in others a
constraint says what may come. A mark may be a token of its own or be spread over several, and the
token that completes it may bring text of the next phase along: where that phase refuses the text,
the token is not allowed, so no place of an answer is left without its constraint.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

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


@dataclass(frozen=True, slots=True)
class Free:
    """A phase of any text until a mark is written; `marks` names the phase that follows each.

    Of two marks that begin alike, the shorter one counts. The answer may end here if `may_end`.
    """

    marks: Mapping[str, str]
    may_end: bool = False


@dataclass(frozen=True, slots=True)
class Constrained:
    """A phase whose text a constraint allows; `start` returns it as it is at its beginning.

    Up to `newlines` line breaks may come first. Instead of all that, one of the marks of `openings`
    may be written, which leads to another phase, such as reasoning. When the constraint is over,
    the phase `then` follows; without one, the answer is over.
    """

    start: Callable[[], Constraint]
    newlines: int = 0
    openings: Mapping[str, str] = field(default_factory=dict)
    then: str = ""


Phase: TypeAlias = Free | Constrained


class _Place(NamedTuple):
    """A place in an answer.

    `matched` is the end of the text if it may be the beginning of a mark, and `newlines` came
    before a constraint's text. Of the constraints begun so far, the last is number `round`, and it
    has followed `pushed` tokens.
    """

    phase: str
    matched: bytes
    newlines: int
    round: int
    pushed: int


class _Landing(NamedTuple):
    """Where a token leads: to a place in a phase, after tokens that its constraint follows.

    With `begins`, the phase begins there.
    """

    phase: str
    matched: bytes = b""
    newlines: int = 0
    tokens: Sequence[int] = ()
    begins: bool = True


class PhasedConstraint:
    """A Constraint that goes through phases, by name, from the first one on."""

    def __init__(self, phases: Mapping[str, Phase], texts: Texts) -> None:
        """Begin with the first phase; `texts` are the vocabulary's."""
        self._phases = phases
        self._texts = texts
        self._marks = {name: _encoded(rule) for name, rule in phases.items()}
        self._rounds: list[Constraint] = []
        self._pushed: list[int] = []
        self._places: list[_Place] = []
        self._masks: dict[tuple[str, bytes, int], Mask | None] = {}
        self._probes: dict[str, Constraint] = {}
        self._arrive(_Landing(next(iter(phases))))

    def mask(self) -> Mask | None:
        """Return the tokens that may come next, None if all may."""
        if inner := self._inner():
            return inner.mask()
        phase, matched, newlines, _, _ = self._places[-1]
        key = (phase, matched, newlines)
        if key not in self._masks:
            self._masks[key] = self._made_mask()
        return self._masks[key]

    def forced(self) -> Sequence[int]:
        """Return the tokens that must come next, in order; none where there is a choice."""
        inner = self._inner()
        return inner.forced() if inner else ()

    def push(self, token: int) -> None:
        """Follow a token that the mask allows. Raises InvalidOption for another one."""
        landing = None
        if 0 <= token < self._texts.size and token not in self._texts.end_tokens:
            landing = self._landing(token)
        if landing is None:
            raise InvalidOption(
                f"token {token} is not allowed after {len(self._places) - 1} others"
            )
        self._arrive(landing)

    def pop(self, count: int) -> None:
        """Take the last `count` tokens back."""
        del self._places[len(self._places) - count :]
        place = self._places[-1]
        del self._rounds[place.round + 1 :], self._pushed[place.round + 1 :]
        if self._rounds:
            self._rounds[-1].pop(self._pushed[-1] - place.pushed)
            self._pushed[-1] = place.pushed

    @property
    def is_over(self) -> bool:
        """Whether only the end may follow."""
        inner = self._inner()
        return inner is not None and inner.is_over

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        place = self._places[-1]
        rule = self._phases[place.phase]
        if isinstance(rule, Free):
            return rule.may_end
        return not place.matched and self._rounds[-1].is_complete

    def _inner(self) -> Constraint | None:
        """Return the constraint that alone says what may come next, if there is one."""
        place = self._places[-1]
        rule = self._phases[place.phase]
        if isinstance(rule, Free):
            return None
        has_begun = place.pushed > 0 or (place.newlines == rule.newlines and not rule.openings)
        return self._rounds[-1] if has_begun else None

    def _arrive(self, landing: _Landing) -> None:
        """Go to a place."""
        rule = self._phases[landing.phase]
        if isinstance(rule, Constrained):
            if landing.begins:
                self._rounds.append(rule.start())
                self._pushed.append(0)
            for token in landing.tokens:
                self._rounds[-1].push(token)
                self._pushed[-1] += 1
            if landing.tokens and rule.then and self._rounds[-1].is_over:
                self._arrive(_Landing(rule.then))
                return
        pushed = self._pushed[-1] if self._pushed else 0
        last_round = len(self._rounds) - 1
        place = _Place(landing.phase, landing.matched, landing.newlines, last_round, pushed)
        self._places.append(place)

    def _landing(self, token: int) -> _Landing | None:
        """Return where a token leads from here; None if it is not allowed."""
        phase, matched, newlines, _, _ = self._places[-1]
        rule = self._phases[phase]
        piece = self._texts.piece(token)
        if isinstance(rule, Free):
            return self._after(phase, matched, piece)
        if self._inner() or (not matched and _allows(self._rounds[-1], token)):
            return _Landing(phase, newlines=newlines, tokens=(token,), begins=False)
        return self._before_text(rule, piece)

    def _before_text(self, rule: Constrained, piece: bytes) -> _Landing | None:
        """Return where bytes lead that come before a constraint's text or in its place."""
        phase, matched, newlines, _, _ = self._places[-1]
        total = newlines + len(piece)
        if not matched and piece and not piece.strip(NEWLINE) and total <= rule.newlines:
            return _Landing(phase, newlines=total, begins=False)
        text = matched + piece
        for opening, leads_to in self._marks[phase].items():
            if piece and text.startswith(opening):
                return self._after(leads_to, b"", text[len(opening) :])
            if piece and opening.startswith(text):
                return _Landing(phase, text, newlines, begins=False)
        return None

    def _after(self, phase: str, matched: bytes, data: bytes) -> _Landing | None:
        """Return where bytes lead from the beginning of a phase, or from a text of any kind."""
        rule = self._phases[phase]
        if isinstance(rule, Constrained):
            return self._at_beginning(phase, rule, data)
        marks = self._marks[phase]
        for index, byte in enumerate(data):
            matched += bytes((byte,))
            if mark := next((each for each in marks if matched.endswith(each)), None):
                return self._after(marks[mark], b"", data[index + 1 :])
            while matched and not any(each.startswith(matched) for each in marks):
                matched = matched[1:]
        return _Landing(phase, matched)

    def _at_beginning(self, phase: str, rule: Constrained, data: bytes) -> _Landing | None:
        """Return where bytes lead from the beginning of a phase with a constraint."""
        text = data.lstrip(NEWLINE)
        newlines = len(data) - len(text)
        for skipped, rest in ((0, data), (newlines, text)):
            tokens = self._tokens_of(rest)
            if skipped <= rule.newlines and tokens is not None and self._accepts(phase, tokens):
                return _Landing(phase, newlines=skipped, tokens=tokens)
        return None

    def _tokens_of(self, data: bytes) -> Sequence[int] | None:
        """Return the tokens of a text; None for a part of a character."""
        try:
            return self._texts.tokenize(data.decode()) if data else ()
        except UnicodeDecodeError:
            return None

    def _accepts(self, phase: str, tokens: Sequence[int]) -> bool:
        """Return True if these tokens may begin the text of a phase."""
        rule = self._phases[phase]
        if not tokens or isinstance(rule, Free):
            return True
        probe = self._probes[phase] = self._probes.get(phase) or rule.start()
        num_pushed = 0
        try:
            for token in tokens:
                probe.push(token)
                num_pushed += 1
        except InvalidOption:
            return False
        except EngineFailed:
            del self._probes[phase]  # it has given up, and would refuse all that is tried next
            return False
        finally:
            probe.pop(num_pushed)
        return True

    def _made_mask(self) -> Mask | None:
        """Return the mask of a place where more than a constraint says what may come."""
        place = self._places[-1]
        rule = self._phases[place.phase]
        return self._free_mask(rule) if isinstance(rule, Free) else self._waiting_mask()

    def _free_mask(self, rule: Free) -> Mask | None:
        """Return the mask of a text of any kind: only what completes a mark can be refused."""
        ends = self._texts.end_tokens
        last_bytes = {mark[-1] for mark in self._marks[self._places[-1].phase]}
        refused = [token for token in self._with_any(last_bytes) if self._landing(token) is None]
        refused += () if rule.may_end else ends
        if not refused:
            return None
        flags = np.ones(self._texts.size, dtype=np.bool_)
        flags[refused] = False
        flags[list(ends)] = rule.may_end
        return Mask.where(flags)

    def _waiting_mask(self) -> Mask:
        """Return the mask of a place where a constraint's text, or something else, may begin."""
        phase, matched = self._places[-1][:2]
        flags = np.zeros(self._texts.size, dtype=np.bool_)
        if not matched:
            inner = self._rounds[-1].mask()
            flags[:] = True if inner is None else inner.allowed(np.arange(self._texts.size))
        openings = [each for each in self._marks[phase] if each.startswith(matched)]
        firsts = {each[len(matched)] for each in openings}
        possible = self._with_any({*firsts, *NEWLINE})
        flags[[token for token in possible if self._landing(token) is not None]] = True
        return Mask.where(flags)

    def _with_any(self, values: Iterable[int]) -> Iterator[int]:
        """Yield the tokens that contain one of these bytes and do not end the answer."""
        ends = self._texts.end_tokens
        found = {token for byte in values for token in self._texts.containing(byte)}
        return (token for token in found if token not in ends)


def _encoded(rule: Phase) -> dict[bytes, str]:
    """Return a phase's marks as bytes, with the phases that follow."""
    marks = rule.marks if isinstance(rule, Free) else rule.openings
    return {mark.encode(): phase for mark, phase in marks.items()}


def _allows(constraint: Constraint, token: int) -> bool:
    """Return True if a constraint allows a token next."""
    mask = constraint.mask()
    return mask is None or mask.allows(token)
