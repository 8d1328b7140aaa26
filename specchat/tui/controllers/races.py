"""Races: the last answer decoded again, plainly and speculatively; no Textual here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from secrets import randbelow
from typing import Any

from specchat.bench.race_record import MAX_TOKENS, Lane, Race, Rounds
from specchat.chat.conversation import Message
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import AUTO, PLAIN
from specchat.safe_text import harmless
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import AnswerDisplay, ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.writing import Writing
from specchat.tui.texts.schema_text import structure_of

MIN_TOKENS = 16
NUM_SEEDS = 2**32
RACE = "race"
"""The key of the race in the statistics of a stored answer."""


@dataclass(frozen=True, slots=True)
class Races:
    """Decodes the last answer both ways with one seed, and stores the result with the answer.

    The two lanes run one after the other, so that neither slows the other down.
    """

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
        """Race the last answer, and show the race once both lanes are decoded."""
        answer, pair = self.conversations.last, self.pair_controller
        if answer is None or answer.role != "assistant":
            self.view.notify("There is no answer to race yet.")
        elif (facts := pair.facts) is None and pair.pair.server is not None:
            pair.require_session()  # only the server says whether it can turn drafts off
            self.view.notify("Not connected yet: try again in a moment.")
        elif facts is not None and not facts.chooses_drafter:
            words = f"{harmless(facts.served_by)} cannot turn drafts off for one answer."
            self.view.notify(f"{words} A race needs `specchat serve` there.")
        elif answer.statistics.get("drafted") == 0:  # any difference would be chance
            self.view.notify("That answer used no drafts, so there is no speedup to measure.")
        else:
            seed = self.options.current.get("seed")
            seed = randbelow(NUM_SEEDS) if seed is None else seed
            display = await self.view.last_answer()
            self._next_round(answer, seed, show, Rounds(), display)

    def _next_round(
        self,
        answer: Message,
        seed: int,
        show: Callable[[Race], None],
        rounds: Rounds,
        display: AnswerDisplay | None,
    ) -> None:
        then = partial(self._plain_ended, answer, seed, show, rounds)
        lane = Writing(display=display, words="race, first without speculation", then=then)
        self._decode(lane, answer, seed=seed, drafter=PLAIN)

    def _plain_ended(
        self,
        answer: Message,
        seed: int,
        show: Callable[[Race], None],
        rounds: Rounds,
        lane: Writing,
        statistics: Statistics,
    ) -> None:
        plain = Lane.of(lane.steps, statistics)
        then = partial(self._both_ended, answer, seed, plain, show, rounds)
        ours = Writing(display=lane.display, words="race, now with speculation", then=then)
        self._decode(ours, answer, seed=seed, **_speculation_options(self.options.current))

    def _decode(self, lane: Writing, answer: Message, **options: Any) -> None:
        """Decode as many tokens as the answer has, within limits."""
        tokens = min(max(answer.statistics.get("generated_tokens", 0), MIN_TOKENS), MAX_TOKENS)
        structure = structure_of(answer.schema)
        self.answers.send(
            lane, answer.parent or 0, max_tokens=tokens, structure=structure, **options
        )

    def _both_ended(
        self,
        answer: Message,
        seed: int,
        plain: Lane,
        show: Callable[[Race], None],
        rounds: Rounds,
        lane: Writing,
        statistics: Statistics,
    ) -> None:
        facts, tree = self.pair_controller.facts, self.conversations.tree
        if facts is None or answer.id not in tree:
            return
        rounds.add(plain, Lane.of(lane.steps, statistics))
        if not rounds.is_decided:
            self._next_round(answer, seed, show, rounds, lane.display)
            return
        question = tree[answer.parent].text if answer.parent is not None else ""
        race = rounds.race(question, facts.target, facts.draft)
        self._store(lane, answer, {RACE: race.as_record(), **_measured_speedup(race, answer)})
        show(race)

    def _store(self, lane: Writing, answer: Message, measured: Mapping[str, Any]) -> None:
        """Store the measurements with the answer, and show them."""
        record = self.conversations.keep_figures(answer.id, measured)
        self.answers.take_measured(record)
        self.view.show_state()
        if lane.display is not None:
            lane.display.say(*self.answers.line_below(answer.finish, record))
        self.answers.settle()


def _speculation_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that turn speculation on, if the user has turned it off since the answer."""
    switched_off = {"drafter": PLAIN, "draft_length": 0}
    return {name: AUTO for name, off in switched_off.items() if options.get(name) == off}


def _measured_speedup(race: Race, answer: Message) -> dict[str, Any]:
    """Return the speedup and the seconds saved, for an answer's statistics.

    Empty if the texts differ: the times of different texts cannot be compared.
    """
    if not race.is_same_text or not race.gain.is_sound:
        return {}
    rates = [lane.tokens_per_second for lane in race.lanes]
    rates[0] = rates[1] / race.speedup
    return {
        "speedup": race.speedup,
        "saved_s": answer.statistics.get("decode_s", 0.0) * (race.speedup - 1),
        "speedup_source": "in the race",
        "measured_rates": rates,
    }
