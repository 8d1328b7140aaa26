"""Answers: sending requests, streaming, stopping, storing; no Textual here."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from specchat.chat.stored_steps import StoredSteps
from specchat.errors import ContextFull, InvalidOption, SpecchatError, StoreFailed
from specchat.requests.answer_update import Update
from specchat.structured.unfinished import unfinished_place
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answer_options import DECIDING, AnswerOptions
from specchat.tui.controllers.chat_view import AnswerDisplay, ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.gains import Gains
from specchat.tui.controllers.ghosts import Ghosts
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.session import SECONDS_TO_END, Question
from specchat.tui.controllers.writing import WAITING, Writing
from specchat.tui.texts.figures import (
    ASKED_WITH,
    REPEATING,
    SERVED_BY,
    UNFINISHED,
    Figures,
    stored_figures,
)
from specchat.tui.texts.line_below import LineBelow, line_below, repeating_line
from specchat.tui.texts.sampling_text import only_sampling

SHOW_INTERVAL = 0.05
"""Seconds between two drawings of the text; steps that arrive in between are drawn together."""
SHARED_INTERVAL = 0.5
"""The same while the engine uses every core: at 0.05, drawing took 15 % of a core, and a model of
135M parameters on two cores ran 11 % slower than at 0.75."""
FIGURES_INTERVAL = 1.0
"""Seconds between two updates of the figures."""
SETTLE_INTERVAL = 0.3
"""Seconds before retrying a write that another program blocked."""
NUM_ALTERNATIVES = 5
"""Tokens recorded for each place of an answer, to continue from there with another one."""


class Answers:
    """Requests answers from the loaded pair, one at a time, and shows and stores them.

    `Questions` says what is asked.
    """

    def __init__(
        self,
        view: ChatView,
        conversations: Conversations,
        pair_controller: PairController,
        options: AnswerOptions,
        key_of: KeyOf,
    ) -> None:
        self.current: Writing | None = None
        self.figures = Figures()
        self.on_end: Callable[[int], None] = lambda _: None
        """Called with an answer that has ended."""
        self.on_free: Callable[[], None] = lambda: None
        """Called once nothing is being written, be it an answer or a part of a race."""
        self.repeat_limit = 0
        """Tokens said over and over after which an answer is stopped; 0 for never."""
        self.ghosts = Ghosts(view)
        """What is drafted, ahead of the text."""
        self._view = view
        self._conversations = conversations
        self._pair_controller = pair_controller
        self._options = options
        self._key_of = key_of
        self._shown_at = self._figures_at = 0.0
        self._noticed: set[tuple[int | None, str, str]] = set()
        self._gains = Gains(conversations.store.saved_seconds)

    @property
    def here(self) -> Writing | None:
        """The answer being written, if the open conversation has it, or a part of a race."""
        writing, tree = self.current, self._conversations.tree
        is_here = writing is not None and (writing.is_lane or writing.message in tree)
        return writing if is_here else None

    def is_busy(self) -> bool:
        """Return True, and notify the user, while an answer is being written."""
        if self.current is not None and self.here is None:
            stop = self._key_of("stop")
            self._view.notify(f"Another chat is still answering. {stop} there stops it.")
            return True
        return self.is_busy_here()

    def is_busy_here(self) -> bool:
        """Return True, and notify the user, while the open conversation is being answered."""
        if self.here is None:
            return False
        words = f"Still answering. {self._key_of('stop')} stops it."
        self._view.notify(words, severity="warning")
        return True

    def is_busy_in(self, conversation: int) -> bool:
        """Return True, and notify the user, while an answer of a conversation is being written."""
        writing = self.current
        return writing is not None and writing.conversation == conversation and self.is_busy()

    def is_racing(self) -> bool:
        """Return True, and notify the user, while a race runs, which needs its answer in sight."""
        return self.current is not None and self.current.is_lane and self.is_busy()

    def show_in(self, display: AnswerDisplay | None) -> None:
        """Show the answer being written in another view; None while it is out of sight."""
        writing = self.current
        if writing is None or writing.is_lane:
            return
        writing.display = display
        if display is not None and writing.has_begun:
            display.show(writing.parts)
            self._say_repeating(writing)
        elif display is not None:
            display.say(WAITING)

    def take_measured(self, record: Mapping[str, Any]) -> None:
        """Show what a race measured of the newest answer."""
        self.figures.compare(record)
        self._gains.correct(self.figures)

    def recall(self) -> None:
        """Show the figures of the last answer in the branch on the screen."""
        writing = self.here
        if writing is not None and not writing.is_lane:
            self.figures = writing.figures
        else:
            self.figures = stored_figures(self._conversations.branch) or Figures()
        self._gains.add_up(self.figures)
        self._view.show_state()

    def steps_of(self, answer: int) -> StoredSteps | None:
        """Return the steps of an answer, which may be in progress; None if they are not known."""
        writing = self.current
        if writing is None or writing.message != answer:
            return self._conversations.writes.steps_of(answer)
        return self._known_steps(writing)

    def served_by(self, answer: int) -> str:
        """Return the server that wrote an answer, "" for a model on this machine."""
        writing = self.current
        if writing is not None and writing.message == answer:
            return writing.figures.statistics.served_by
        return str(self._conversations.tree[answer].statistics.get(SERVED_BY, ""))

    def asked_with(self, answer: int) -> Mapping[str, Any]:
        """Return the options that decided an answer, as far as they are known."""
        writing = self.current
        if writing is not None and writing.message == answer:
            return writing.asked_with
        return dict(self._conversations.tree[answer].statistics.get(ASKED_WITH, {}))

    def _known_steps(self, writing: Writing) -> StoredSteps:
        """Return an answer's steps, without a target where its tokens cannot be continued."""
        facts = self._pair_controller.facts
        target = facts.target if facts and not writing.is_joined else ""
        return StoredSteps(target, tuple(writing.steps))

    def stop(self) -> None:
        """Stop the answer, at once if the pair is still loading."""
        session, writing = self._pair_controller.session, self.current
        if writing is None:
            return
        writing.is_stopped = True
        if session is not None:
            session.stop()
            if not session.is_loaded:
                self.end("cancelled")
        self._view.later(SECONDS_TO_END, partial(self._warn, writing))

    def end(self, finish: str, reason: str = "", *, is_refused: bool = False) -> None:
        """Store what has been written of the answer, and show how it ended.

        Another version of an answer is withdrawn if nothing was written of it, or if its beginning
        was refused.
        """
        writing, self.current = self.current, None
        if writing is None:
            return
        if reason and not writing.has_begun:
            finish = writing.finish or finish  # continuing it failed, so it ended as before
        has_arrived = writing.has_begun
        writing.end()
        self._view.show_state()
        self._view.say("", "progress")
        self.on_free()
        if writing.stored is None:
            return
        is_void = is_refused or (finish == "cancelled" and writing.parts.is_empty)
        if is_void and self._withdraw(writing, reason):
            return
        pair, facts = self._pair_controller.pair, self._pair_controller.facts
        figures = writing.statistics(pair.name, facts.draft if facts else None)
        if writing.stored.schema:
            figures[UNFINISHED] = unfinished_place(writing.parts.text)
        steps = self._known_steps(writing) if has_arrived else None
        self._conversations.finish(writing.stored, writing.parts, finish, figures, steps)
        if writing.display is None:
            self._report_elsewhere(
                writing, reason, is_looping=finish == "cancelled" and REPEATING in figures
            )
        else:
            words = (reason,) if reason else self.line_below(finish, figures)
            writing.display.say(*words, has_failed=bool(reason))
        saved_before = writing.before.get("saved_s") or 0.0  # counted when that part ended
        saved_s = figures["saved_s"] - saved_before
        self._gains.count(writing.figures, self._options.drafting, saved_s)
        if writing.before or self.figures is not writing.figures:
            self.recall()  # the figures of the whole answer, as below it
        self.settle()
        self.on_end(writing.stored.id)
        self._view.show_state()

    def _withdraw(self, writing: Writing, reason: str) -> bool:
        """Show what was shown before a version that says nothing; False if that is impossible."""
        chat, answer, before = self._conversations, writing.message, writing.shown_before
        if answer is None or before is None or answer not in chat.tree:
            return False
        try:
            chat.withdraw(answer, before)
        except StoreFailed:
            return False
        if reason:
            self._view.notify(reason, severity="warning")
        self.recall()
        self._view.later(SHOW_INTERVAL, self._view.show_branch)
        return True

    def _report_elsewhere(self, writing: Writing, reason: str, *, is_looping: bool) -> None:
        """Say that an answer has ended in a conversation that is not open."""
        title = "Another chat"
        with suppress(SpecchatError):  # another process may have deleted it, or use the store
            title = self._conversations.store.conversation(writing.conversation or 0).title
        if reason:
            self._view.report(f"{title}: {reason}")
        else:
            words = "Stopped, repeating itself" if is_looping else "Answered"
            self._view.notify(f"{words}: {title}. {self._key_of('conversations')} opens it.")

    def line_below(self, finish: str | None, figures: Mapping[str, Any]) -> LineBelow:
        """Return the line below an answer of this conversation."""
        has_older = self._conversations.has_older
        return line_below(finish, figures, self._key_of, has_older=has_older)

    def settle(self) -> None:
        """Retry pending writes until they succeed; a busy store or a full disk may block them."""
        is_settled = self._conversations.writes.settle()
        self._view.say(self._conversations.writes.trouble, "history")
        if not is_settled:
            self._view.later(SETTLE_INTERVAL, self.settle)

    def send(self, writing: Writing, leaf: int, **options: Any) -> None:
        """Ask the pair to continue the conversation up to a message."""
        session = self._pair_controller.require_session()
        chat, structure = self._conversations, options.get("structure")
        schema = structure.source if structure else ""
        turns = chat.turns(leaf, schema)
        if writing.begun:
            options["begun"] = writing.begun
        elif (turn := writing.parts.turn) is not None:
            turns.append(turn)
        self.current, writing.conversation = writing, chat.number
        if writing.message is not None:
            writing.stored = chat.tree[writing.message]
            writing.figures = self.figures
            writing.own = list(only_sampling(options))
            self.figures.begin()
            self._gains.begin(self.figures, self._options.drafting)
            options["alternatives"] = NUM_ALTERNATIVES
            self._shown_at = 0.0  # its first text does not wait for what was drawn before
        if images := chat.tree.images(leaf):
            options["images"] = images
        options = {"make_room": True, **self._options.current, **options}
        writing.drawn_with = options.get("seed")
        kept = DECIDING.union(writing.own) - {"seed"}  # which stands by itself
        asked_with = {name: options[name] for name in options if name in kept}
        writing.asked_with = {"temperature": self._options.temperature, **asked_with}
        if pinned := chat.pinned_turns(leaf, schema):
            options["pinned"] = pinned
        arrived = partial(self._arrived, writing)
        writing.question = Question(
            turns, options, arrived, is_timed=writing.is_lane, measures_first=writing.measures_first
        )
        session.ask(writing.question)
        self._view.show_state()

    def _arrived(self, writing: Writing) -> None:
        """Show what is new: at the next update if the last one was too recent, the end at once."""
        interval = SHARED_INTERVAL if self._pair_controller.uses_all_cores else SHOW_INTERVAL
        wait = max(self._shown_at + interval, self.ghosts.stands_until(writing)) - monotonic()
        show = partial(self._show_new, writing)
        self._view.later(wait, show) if wait > 0 and not writing.is_over else show()

    def _warn(self, writing: Writing) -> None:
        if self.current is writing:
            restart = self._key_of("restart")
            self._view.say(f"The engine does not respond. {restart} restarts it.")

    def _explain(self, writing: Writing, error: SpecchatError) -> str:
        """Return an error as text; for a prompt that does not fit, add how to make room."""
        has_schema = bool(writing.stored and writing.stored.schema)
        if writing.begun and has_schema and isinstance(error, InvalidOption):
            # the steps show what the model itself would write there
            return f"The schema does not allow that token there. {self._key_of('steps')} has others"
        if not isinstance(error, ContextFull) or self.here is not writing:
            return str(error)
        ways = (
            f"Select the question and press e to edit it, {self._key_of('new')} starts a new chat"
        )
        larger = f", {self._key_of('settings')} sets ctx" if "--ctx" in str(error) else ""
        chat, schema = self._conversations, writing.stored.schema if writing.stored else ""
        pinned, staying = chat.pinned_turns(chat.leaf), chat.pinned_turns(chat.leaf, schema)
        unpin = ", p on a pinned message unpins it" if pinned else ""
        told = ", /schema off leaves the schema out" if staying != pinned else ""
        return f"{error}. {ways}{larger}{unpin}{told}."

    def _show_new(self, writing: Writing) -> None:
        """Show what is new of an answer, and store the text so far; or end it."""
        if writing is not self.current or writing.question is None:
            return
        update = writing.question.take(self._pair_controller.progressed)
        if update.chunks:
            self._add(writing, update)
        if update.is_over:
            self._ended(writing, update)
            return
        if not update.chunks:
            return
        self._watch_for_loops(writing, update.statistics.repeating)
        if self._shown_at - self._figures_at >= FIGURES_INTERVAL:
            self._figures_at = self._shown_at
            self._view.show_state()
        if writing.message is not None:
            self._conversations.writes.write(writing.message, writing.parts)
            self._view.say(self._conversations.writes.trouble, "history")

    def _add(self, writing: Writing, update: Update) -> None:
        """Add the steps of an update to an answer, with the notices of its statistics."""
        chunks, statistics = list(update.chunks), update.statistics
        self._shown_at = monotonic()
        if writing.is_lane:
            self._view.say(writing.words, "progress")
            writing.add(chunks, statistics)
            return
        writing.figures.add(chunks, statistics)
        writing.add(chunks, statistics)
        writing.show(self.ghosts.next(writing))
        left_out = statistics.left_out if self.here else 0
        words = (
            f"the oldest {left_out} messages no longer fit the context: the model does not see"
            " them (/context)"
        )
        self._view.say(words if left_out else "", "context")
        word = self._options.wanted_thinking
        if word != self._options.thinking:
            refused = f"This model does not support think = {word}: using auto."
            self._notify_once(f"{refused} /think lists its values.")
        for notice in statistics.notices:
            self._notify_once(notice)

    def _watch_for_loops(self, writing: Writing, num_repeating: int) -> None:
        """Say below an answer that it repeats itself, and stop it after `repeat_limit` tokens."""
        if writing.is_lane:
            return
        if writing.is_repeating != bool(num_repeating):
            writing.is_repeating = bool(num_repeating)
            self._say_repeating(writing)
        if 0 < self.repeat_limit <= num_repeating and not writing.is_stopped:
            self.stop()

    def _say_repeating(self, writing: Writing) -> None:
        """Show below an answer in progress whether it repeats itself."""
        if writing.display is not None:
            words = repeating_line(self._key_of) if writing.is_repeating else ""
            writing.display.say(words)

    def _notify_once(self, notice: str) -> None:
        """Show a notice about an ignored option, once per conversation and pair."""
        known = self._conversations.number, self._pair_controller.pair.name, notice
        if known not in self._noticed:
            self._noticed.add(known)
            self._view.notify(notice, severity="warning")

    def _ended(self, writing: Writing, last: Update) -> None:
        reason = self._explain(writing, last.error) if last.error else ""
        self._pair_controller.tell(last.error)
        if not writing.is_lane and not reason:
            writing.figures.follow(last.statistics)
        is_refused = bool(writing.begun) and isinstance(last.error, InvalidOption)
        self.end(last.finish or "failed", reason, is_refused=is_refused)
        if writing.is_lane and reason:
            self._view.report(f"The race failed: {reason}")
        elif not (writing.then is None or writing.is_stopped or last.finish == "cancelled"):
            writing.then(writing, last.statistics)
