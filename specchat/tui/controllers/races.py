"""Races: the last answer decoded again, with drafts and without; no Textual here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from specchat.bench.race_record import LaneInProgress, Race, RacedAnswer, why_no_race
from specchat.chat.answer_statistics import RACE, over_the_answer, record_of
from specchat.chat.conversation import Message
from specchat.chat.stored_steps import StoredSteps
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import AUTO, DRAFTERS, MODELS
from specchat.engine.api import EngineFacts
from specchat.options.declarations import GenerateOptions
from specchat.safe_text import harmless
from specchat.tui.controllers.answer_options import DECIDING
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import AnswerDisplay, ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.image_checks import ImageChecks
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.writing import DRAFT, SEED, Writing
from specchat.tui.texts.figures import ASKED_WITH
from specchat.tui.texts.schema_text import structure_of


@dataclass(frozen=True, slots=True)
class _Running:
    """A race in progress."""

    message: Message
    options: Mapping[str, Any]
    """How the answer was asked for."""
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
    checks: ImageChecks

    @property
    def last(self) -> Race | None:
        """The race of the last answer; None if it has none yet."""
        answer = self.conversations.last
        return Race.of_record(answer.statistics.get(RACE, {})) if answer else None

    def can_race(self, answer: Message) -> bool:
        """Return whether an answer can be raced now."""
        is_loaded = self.pair_controller.facts is not None  # asking why not would load the pair
        return is_loaded and self._why_not(answer, self.answers.steps_of(answer.id)) is None

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
            raced, options = RacedAnswer(known.steps), _options_of(answer)
            running = _Running(answer, options, raced, display, show)
            self._next_turn(running, measures_first=True)

    def _why_not(self, answer: Message, known: StoredSteps | None) -> str | None:
        """Return why an answer cannot be raced now, None if it can."""
        pair, facts = self.pair_controller.pair, self.pair_controller.facts
        if pair.server is not None:
            return "A race needs a model on this machine."
        if facts is None:
            self.pair_controller.require_session()  # it may have been unloaded
            return "The model is still loading: try again in a moment."
        if reason := why_no_race(facts):
            return f"No race: {harmless(reason)}."
        if reason := self.checks.why_no_reader((), self.conversations.tree.images(answer.parent)):
            return reason
        return _why_not_this(answer.statistics, known, facts)

    def _next_turn(self, race: _Running, *, measures_first: bool = False) -> None:
        """Decode the next part of the answer, or end the race after the last one."""
        message, turn = race.message, next(race.answer.turns, None)
        if turn is None:
            self._end(race)
            return
        lane, end = turn
        words, then = race.answer.progress, partial(self._turn_ended, race, lane)
        writing = Writing(
            display=race.display, words=words, then=then, measures_first=measures_first
        )
        options = {**race.options, **lane.options(end)}
        self.answers.send(writing, message.parent or 0, **options)
        self.view.say(words, "progress")

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
        ended = race.answer.race(question, facts, self.pair_controller.pair.title)
        measured = {RACE: ended.as_record()}
        if ended.gain.kind != "plain":
            measured |= record_of(over_the_answer(message.statistics, ended.gain))
        record = self.conversations.keep_figures(message.id, measured)
        self.answers.take_measured(record)
        self.view.show_state()
        if race.display is not None:
            race.display.say(*self.answers.line_below(message.finish, record))
        self.answers.settle()
        race.show(ended)


def _why_not_this(
    statistics: Mapping[str, Any], known: StoredSteps | None, facts: EngineFacts
) -> str | None:
    """Return why this model cannot race an answer of these statistics and steps."""
    if statistics.get("drafted") == 0:  # any difference would be chance
        return "That answer used no drafts, so there is no speedup to measure."
    if known is None or not known.target:
        return "The tokens of that answer are not stored. Regenerate it to race it."
    if known.target != facts.target:
        return f"{harmless(known.target)} wrote that answer. Regenerate it to race it."
    if ASKED_WITH not in statistics:
        return "How that answer was asked for is not stored. Regenerate it to race it."
    if drafter := _missing_drafter(statistics, facts):
        words = f"{harmless(drafter)}, which is not in use now"
        return f"That answer was drafted with {words}. Regenerate it to race it."
    return None


def _options_of(message: Message) -> dict[str, Any]:
    """Return the options that an answer was decoded with."""
    usual, asked = GenerateOptions(), message.statistics[ASKED_WITH]
    drafter = DRAFTERS[message.statistics["drafter"]]
    return {
        **{name: asked.get(name, getattr(usual, name)) for name in DECIDING},
        "drafter": drafter.name if drafter.is_choice else AUTO,
        "seed": message.statistics.get(SEED),
        "structure": structure_of(message.schema),
    }


def _missing_drafter(statistics: Mapping[str, Any], facts: EngineFacts) -> str:
    """Return what an answer was drafted with, if it is not in use now; else an empty text."""
    name, draft = statistics.get("drafter", ""), statistics.get(DRAFT)
    if name not in DRAFTERS:
        return str(name)
    needs = DRAFTERS[name].needs
    is_missing = needs and (draft != facts.draft or facts.draft_off_reason)
    return str(draft or MODELS[needs]) if is_missing else ""
