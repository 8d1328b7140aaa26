"""Advice on getting faster answers where speculation does not help; no Textual here."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from specchat.drafter_registry import AUTO, DRAFTERS, MODELS, PLAIN, automatic
from specchat.errors import SpecchatError
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.session import Post
from specchat.tui.setup import Offer, PairChoice
from specchat.tui.texts.figures import AGREEING

STEADY_SECONDS = 3.0
"""During an answer, advice is shown once it has stayed the same for this many decoding seconds."""
WITHOUT_MODEL = automatic("")


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change: options for the next answers, or a draft model to load or download."""

    words: str
    options: Mapping[str, Any] = field(default_factory=dict)
    offer: Offer | None = None


@dataclass(slots=True)
class Adviser:
    """Advises on the answer whose figures are shown."""

    view: ChatView
    answers: Answers
    options: AnswerOptions
    pair_controller: PairController
    find: Callable[[PairChoice], Sequence[Offer]]
    """Finds other drafts for a pair's target; may take a moment."""
    post: Post
    key_of: KeyOf
    _drafts: dict[str, Sequence[Offer]] = field(default_factory=dict)
    _taken_on: object = None
    """Identifies the answer whose advice was taken; whether it helped shows in the next answer."""
    _pending: tuple[object, Advice | None, float] = (None, None, 0.0)
    """During an answer: its origins, the latest advice, and the decoding second it first appeared.

    The second is -inf for advice that is already shown, which then stays.
    """

    def take(self) -> None:
        """Stop giving advice on the current answer, because the user has taken it."""
        self._taken_on = self.answers.figures.origins

    def offer_again(self) -> None:
        """Give the advice that was taken again."""
        self._taken_on = None

    def advice(self) -> Advice | None:
        """Return what would help; None if speculation already helps or nothing else is known to.

        During an answer, advice must be steady for a while before it is returned, and then stays.
        """
        writing = self.answers.here
        if self.answers.figures.origins is self._taken_on or (writing and writing.is_lane):
            return None
        return self._steady(self._find()) if writing else self._find()

    def _steady(self, found: Advice | None) -> Advice | None:
        figures = self.answers.figures
        now = figures.statistics.decode_s
        answer, advice, since = self._pending
        if answer is not figures.origins or (found != advice and since > -inf):
            answer, advice, since = figures.origins, found, now
        is_given = advice is not None and now - since >= STEADY_SECONDS
        self._pending = answer, advice, -inf if is_given else since
        return advice if is_given else None

    def _find(self) -> Advice | None:
        options = self.options.current
        stats = self.answers.figures.statistics
        is_served = bool(stats.served_by) or self.pair_controller.pair.server is not None
        if not stats.generated_tokens or is_served:
            return None
        if options.get("drafter") == PLAIN:
            return Advice("turn speculation on", {"drafter": AUTO})
        if options.get("draft_length") == 0:
            return Advice("let specchat choose the draft length", {"draft_length": AUTO})
        return self._advice_on_drafts(options)

    def words(self) -> str:
        """Return the advice after its key; empty if there is none."""
        advice = self.advice()
        return f"{self.key_of('improve')}: {advice.words}" if advice else ""

    def _advice_on_drafts(self, options: Mapping[str, Any]) -> Advice | None:
        figures = self.answers.figures
        stats = figures.statistics
        drafter = DRAFTERS.get(stats.drafter)
        uses_model = drafter is not None and bool(drafter.needs)
        is_paused = uses_model and stats.draft_off_reason is not None
        is_agreed = figures.num_paused_before >= AGREEING - 1
        is_slow = figures.tone == "bad" or (is_paused and is_agreed and figures.tone != "good")
        is_fine = figures.tone == "good" or (figures.kind == "measuring" and not is_slow)
        if is_fine or stats.speculation_off_reason or options.get("drafter") == WITHOUT_MODEL:
            return None
        if is_slow and options.get("draft_length", AUTO) != AUTO:
            return Advice("let specchat choose the draft length", {"draft_length": AUTO})
        if is_slow and options.get("draft_tree", AUTO) not in {AUTO, "off"}:
            return Advice("let specchat choose the draft tree", {"draft_tree": AUTO})
        if is_slow or not uses_model:
            for offer in self._other_drafts():
                return Advice(offer.description, offer=offer)
        if is_slow and drafter and drafter.needs:
            words = f"draft without the {MODELS[drafter.needs].removeprefix('a ')}"
            return Advice(words, {"drafter": WITHOUT_MODEL})
        return None

    def _other_drafts(self) -> Sequence[Offer]:
        """Return the other drafts for the target; none until a background search has found them."""
        pair = self.pair_controller.pair
        if pair.name not in self._drafts:
            self._drafts[pair.name] = ()
            threading.Thread(target=self._find_drafts, args=(pair,), daemon=True).start()
        return self._drafts[pair.name]

    def _find_drafts(self, pair: PairChoice) -> None:
        try:
            found = self.find(pair)
        except SpecchatError:  # the models screen reports it
            return
        self.post(self._keep, pair.name, found)

    def _keep(self, name: str, found: Sequence[Offer]) -> None:
        self._drafts[name] = found
        self.view.show_state()
