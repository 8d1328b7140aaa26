"""What engines do, and the answers they give, followed on the screen and in the store."""

from __future__ import annotations

from typing import Any

from textual import on

from specchat.chat.answer_statistics import combine_parts
from specchat.decoding.chunk import Chunk
from specchat.engine.api import EngineFacts
from specchat.errors import SpecchatError
from specchat.tui.answering import Answering, Tempo
from specchat.tui.choosing import Choosing
from specchat.tui.controllers.session import Load, Session, load_in_process
from specchat.tui.events import (
    AnswerEnded,
    AnswerFailed,
    EngineLost,
    EngineProgressed,
    EngineReady,
    StepsArrived,
)
from specchat.tui.figures import summary
from specchat.tui.setup import Setup
from specchat.tui.widgets.panel import Panel

__all__ = ["Following"]

MOST_STEPPED = 30
"""Answers whose steps are kept: they take more memory than the answer itself."""
SETTLING_INTERVAL = 0.3
"""Seconds until what waits for another program is written again."""


class Following(Choosing):
    """Loads pairs, and takes in what comes from them."""

    def __init__(self, setup: Setup, load: Load = load_in_process) -> None:
        """Take what to begin with; nothing is loaded before the first screen is shown."""
        super().__init__(setup)
        self._load = load

    def _begin_loading(self) -> None:
        """Load the pair, unless a question came before that."""
        if not self._has_begun:
            self._start()

    def _require_session(self) -> Session:
        """Load the pair unless it is loaded, or being loaded."""
        if self._session is None:
            self._start()
        assert self._session is not None  # noqa: S101  # for the type checker
        return self._session

    def _start(self) -> None:
        """Load the pair, ending one that is loaded."""
        if self._session is not None:
            self._session.close()
        self._has_begun = True
        self._capacity = 0
        self._say("")
        self._session = Session(
            self._pair.loading, self.post_message, self._load, before=self._session
        )
        self._take_up(Tempo())

    @on(EngineProgressed)
    def _progressed(self, event: EngineProgressed) -> None:
        doing = "reading the prompt" if event.stage == "prompt" else f"loading the {event.stage}"
        done = "█" * round(20 * event.share)
        words = "" if event.share >= 1 else f"{doing} {done:░<20} {event.share:.0%}"
        self._say(words, "progress")

    @on(EngineReady)
    def _engine_ready(self, event: EngineReady) -> None:
        self._capacity = event.facts.context
        self._take_up(Tempo(event.facts.idle_processors > 0))
        self._say("", "progress")
        panel = self.query_one(Panel)
        panel.say_facts(event.facts)
        panel.show(self._figures)
        self._say(" ".join(event.facts.notices))
        self._keep_pair(event.facts)
        self._show_top()
        if self._session is not None:
            self.call_after_refresh(self._session.go_on)

    def _take_up(self, tempo: Tempo) -> None:
        """Follow the engine more or less often from now on."""
        self._tempo = tempo
        if self._session is not None:
            self._session.interval = tempo.interval

    def _keep_pair(self, facts: EngineFacts) -> None:
        """Save the pair, where that was wanted."""
        try:
            told = self._pair.keep(facts) if self._pair.keep else ""
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=15)
        else:
            if told:
                self.notify(told)

    @on(EngineLost)
    def _lost(self, event: EngineLost) -> None:
        """Say why there is no engine; a question that waits for it will have no answer."""
        if event.session is not self._session:  # the pair was switched meanwhile
            return
        self._session = None
        self._say("", "progress")
        self._keep_answer("failed", event.reason)
        self._say(f"{event.reason}  Ctrl+R starts it again, F8 chooses another.")

    @on(StepsArrived)
    def _steps_arrived(self, event: StepsArrived) -> None:
        answering = self._answering
        if answering is None or event.number != answering.number:
            return
        if answering.is_comparison:
            self._say(f"decoding plainly: {event.statistics.generated_tokens} tokens", "progress")
            return
        self._figures.add(event.chunks, event.statistics)
        if answering.view is not None and answering.message is not None:
            answering.view.add(event.chunks)
            self._conversing.write(answering.message, answering.view.text)
        left_out = event.statistics.left_out
        full = (
            f"the context is full: the oldest {left_out} messages are no longer seen by the model"
        )
        self._say(full if left_out else "", "context")
        if self._tempo.is_time_for_figures():
            self._show_figures()
        if self._session is not None:
            self._session.interval = self._tempo.adapt()

    @on(AnswerEnded)
    def _ended(self, event: AnswerEnded) -> None:
        answering = self._answering
        if answering is None or event.number != answering.number:
            return
        if answering.is_comparison:
            self._compared(event)
            return
        self._figures.statistics = event.statistics
        self._keep_answer(event.finish)
        self._show_figures()
        self._show_top()

    @on(AnswerFailed)
    def _failed(self, event: AnswerFailed) -> None:
        answering = self._answering
        if answering is None or event.number != answering.number:
            return
        if answering.is_comparison:
            self._say("")
            self.notify(f"Not compared: {event.reason}", severity="error", timeout=15)
        self._keep_answer("failed", event.reason)

    def _compared(self, event: AnswerEnded) -> None:
        """Show what decoding plainly has taken."""
        self._answering = None
        plain = event.statistics.tokens_per_second
        self._say("", "progress")
        branch = self._conversing.branch
        ours = branch[-1].statistics.get("tokens_per_second", 0.0) if branch else 0.0
        if not plain or not ours or event.finish == "cancelled":
            return
        self._figures.plain_rate = plain
        self._show_figures()
        self.notify(
            f"plain decoding: {plain:.1f} tokens/s, with speculation {ours:.1f}:"
            f" {ours / plain:.2f} times as fast",
            timeout=15,
        )

    def _keep_answer(self, finish: str, reason: str = "") -> None:
        """Keep what an answer has come to, and say how it went."""
        answering, self._answering = self._answering, None
        if answering is None:
            return
        if self.is_running:
            self._say("", "progress")
        if answering.view is None or answering.message is None:
            return
        view = answering.view
        figures = self._figures_of(answering)
        self._keep_steps(answering.message, view.steps)
        self._conversing.finish(answering.message, view.text, finish, figures, view.pieces)
        self._settle()
        words = summary(figures)
        ending = {"cancelled": "stopped", "length": "cut at the limit", "context": "context full"}
        view.say(
            reason or " · ".join(filter(None, (ending.get(finish, ""), words))),
            has_failed=bool(reason),
        )

    def _keep_steps(self, message: int, steps: list[Chunk]) -> None:
        """Keep what was proposed and what became of it, of the newest answers."""
        self._steps[message] = steps
        while len(self._steps) > MOST_STEPPED:
            del self._steps[next(iter(self._steps))]

    def _figures_of(self, answering: Answering) -> dict[str, Any]:
        """Return an answer's statistics, with those of what it said before it was continued."""
        stats = self._figures.statistics
        view = answering.view
        figures = {
            **(stats.as_dict() if stats.generated_tokens else {}),
            "speedup": self._figures.speedup,
            "drafter": stats.drafter,
            "drafted_by_position": stats.drafted_by_position,
            "thought_s": view.thought_s if view else 0.0,
        }
        return combine_parts(answering.figures, figures) if answering.begun else figures

    def _settle(self) -> None:
        """Keep what could not be kept while another program was writing, as soon as it can be."""
        if not self._conversing.settle():
            self.set_timer(SETTLING_INTERVAL, self._settle)
