"""Races: the last answer decoded again, with drafts and without; no Textual here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from specchat.bench.race_record import LaneInProgress, Race, RacedAnswer, why_no_race
from specchat.chat.conversation import Message
from specchat.chat.stored_steps import StoredSteps
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import AUTO, PLAIN
from specchat.safe_text import harmless
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import AnswerDisplay, ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.writing import SEED, Writing
from specchat.tui.texts.figures import SAMPLED_WITH
from specchat.tui.texts.sampling_text import only_sampling
from specchat.tui.texts.schema_text import structure_of

RACE = "race"
"""The key of the race in the statistics of a stored answer."""
RACED = "in the race"


@dataclass(frozen=True, slots=True)
class _Running:
    """A race in progress."""

    message: Message
    answer: RacedAnswer
    display: AnswerDisplay | None
    show: Callable[[Race], None]


@dataclass(frozen=True, slots=True)
class Races:
    """Decodes the last answer's tokens again, both ways in turns, and stores the result with it."""

    view: ChatView
    conversations: Conversations
    pair_controller: PairController
    answers: Answers
    options: AnswerOptions

    @property
    def last(self) -> Race | None:
        """The race of the last answer; None if it has none yet."""
        answer = self.conversations.last
        return Race.of_record(answer.statistics.get(RACE, {})) if answer else None

    async def run(self, show: Callable[[Race], None]) -> None:
        """Race the last answer, and show the race once it has ended."""
        answer = self.conversations.last
        if answer is None or answer.role != "assistant":
            self.view.notify("There is no answer to race yet.")
            return
        known = self.answers.steps_of(answer.id)
        if reason := self._why_not(answer, known):
            self.view.notify(reason)
        elif known is not None:
            display = await self.view.last_answer()
            self._next_turn(_Running(answer, RacedAnswer(known.steps), display, show))

    def _why_not(self, answer: Message, known: StoredSteps | None) -> str | None:
        """Return why an answer cannot be raced now, None if it can."""
        pair, facts = self.pair_controller.pair, self.pair_controller.facts
        if pair.server is not None:
            return "A race needs a model on this machine."
        if facts is None:
            self.pair_controller.require_session()  # it may have been unloaded
            return "The pair is still loading: try again in a moment."
        if reason := why_no_race(facts):
            return f"No race: {harmless(reason)}."
        if answer.statistics.get("drafted") == 0:  # any difference would be chance
            return "That answer used no drafts, so there is no speedup to measure."
        if known is None or not known.target:
            return "The tokens of that answer are not stored. Regenerate it to race it."
        if known.target != facts.target:
            return f"{harmless(known.target)} wrote that answer. Regenerate it to race it."
        return None

    def _next_turn(self, race: _Running) -> None:
        """Decode the next part of the answer, or end the race after the last one."""
        message, turn = race.message, next(race.answer.turns, None)
        if turn is None:
            self._end(race)
            return
        lane, end = turn
        words, then = race.answer.progress, partial(self._turn_ended, race, lane)
        writing = Writing(display=race.display, words=words, then=then)
        options = self._options_of(message) | lane.options(end)
        self.answers.send(writing, message.parent or 0, **options)
        self.view.say(words, "progress")

    def _options_of(self, message: Message) -> dict[str, Any]:
        """Return the options that an answer was decoded with, and speculation if it is off now."""
        sampling = only_sampling(message.statistics.get(SAMPLED_WITH, {}))
        if (temperature := message.statistics.get("temperature")) is not None:
            sampling["temperature"] = temperature
        return {
            **_speculation_options(self.options.current),
            **sampling,
            "seed": message.statistics.get(SEED),
            "structure": structure_of(message.schema),
        }

    def _turn_ended(
        self, race: _Running, lane: LaneInProgress, writing: Writing, statistics: Statistics
    ) -> None:
        lane.add(writing.steps, statistics)
        if race.message.id in self.conversations.tree:
            self._next_turn(race)

    def _end(self, race: _Running) -> None:
        """Store what was measured with the answer, and show it."""
        message, facts = race.message, self.pair_controller.facts
        if facts is None:
            return
        question = self.conversations.tree[message.parent].text if message.parent else ""
        ended = race.answer.race(question, facts)
        measured = {RACE: ended.as_record(), **_measured_gain(ended, message)}
        record = self.conversations.keep_figures(message.id, measured)
        self.answers.take_measured(record)
        self.view.show_state()
        if race.display is not None:
            race.display.say(*self.answers.line_below(message.finish, record))
        self.answers.settle()
        race.show(ended)


def _speculation_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that turn speculation on, if the user has turned it off since the answer."""
    switched_off = {"drafter": PLAIN, "draft_length": 0}
    return {name: AUTO for name, off in switched_off.items() if options.get(name) == off}


def _measured_gain(race: Race, message: Message) -> dict[str, Any]:
    """Return what replaces the estimated gain in an answer's statistics."""
    if race.gain.kind == "measuring":  # then an estimate would say too much, too
        return {
            "speedup": 0.0, "speedup_error": 0.0, "saved_s": 0.0, "speedup_source": RACED,
            "measured_rates": [],
        }  # fmt: skip
    speedup, own = race.speedup, race.speculative.tokens_per_second
    return {
        "speedup": speedup,
        "speedup_error": race.gain.error,
        "saved_s": _seconds_counted(message.statistics) * (speedup - 1),
        "speedup_source": RACED,
        "measured_rates": [own / speedup, own],
    }


def _seconds_counted(statistics: Mapping[str, Any]) -> float:
    """Return what decoding took, but for the share of tokens that repeat a passage."""
    repeated, generated = statistics.get("repeated", 0), statistics.get("generated_tokens", 0)
    share = 1 - repeated / generated if generated else 0.0
    return float(statistics.get("decode_s", 0.0)) * share
