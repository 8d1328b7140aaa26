"""The loaded pair: loading it, switching, restarting, unloading; no Textual here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from time import monotonic

from specchat.connection.opening import LoadPair
from specchat.engine.api import EngineFacts
from specchat.errors import SpecchatError
from specchat.requests.progress import STAGES, Stage, StageClock
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.session import Post, Session
from specchat.tui.setup import PairChoice, Remember, forget
from specchat.wording import percent, waited

BAR_WIDTH = 20
READY = "preparing to answer"


@dataclass(slots=True)
class PairController:
    """The pair in use and its session, which is None while no engine is running."""

    view: ChatView
    pair: PairChoice
    post: Post
    load: LoadPair
    key_of: KeyOf
    remember: Remember = forget
    session: Session | None = None
    facts: EngineFacts | None = None
    """What the engine reports about the pair, None until it is loaded."""
    has_failed: bool = False
    """Whether the pair could not be loaded, or its engine has ended by itself."""
    is_unloaded: bool = False
    """Whether its memory was freed on purpose, until the next question."""
    asked_at: float = 0.0
    """When the session was last asked for, by `monotonic`."""
    _told: str = ""
    """The error that stands below an answer, or is a notice."""
    _lost: str = ""
    """Why there is no engine."""
    _ending: Session | None = None
    """The unloaded session, which may still be freeing its memory."""
    _clock: StageClock = field(default_factory=StageClock)

    @property
    def uses_all_cores(self) -> bool:
        """Whether the engine leaves no processor core for drawing the screen."""
        return self.facts is not None and not self.facts.idle_processors

    @property
    def state(self) -> str:
        """What is going on while no model is loaded, in a word or two."""
        is_away = self.has_failed or self.is_unloaded
        if self.pair.server is not None:
            return "not connected" if is_away else "connecting…"
        return "not loaded" if is_away else "loading…"

    def is_timing(self) -> bool:
        """Return whether the status line says for how long a stage of work lasts."""
        return self._clock.is_running

    def start(self) -> Session:
        """End the previous session and load the pair."""
        before = self._end_session()
        self.facts, self.has_failed, self.is_unloaded = None, False, False
        self._told = self._lost = ""
        self.view.say("")
        self.session = Session(self.pair.source, self, self.post, self.load, before)
        return self.session

    def _end_session(self) -> Session | None:
        """Close the session without waiting for it; return the one that ended last, if any."""
        if self.session is not None:
            self.session.close()
            self._ending, self.session = self.session, None
            self._clock.reset()
        return self._ending

    def require_session(self) -> Session:
        """Return the session, starting one if there is none or if its engine has ended."""
        self.asked_at = monotonic()
        if self.session is None or self.session.has_died():
            return self.start()
        return self.session

    def use(self, pair: PairChoice) -> None:
        """Switch to another pair."""
        self.pair = pair
        self.start()
        self.view.show_state()

    def restart(self) -> None:
        """Restart the engine, whatever it is doing."""
        self.start()
        server = self.pair.server
        self.view.say(
            "restarting the engine" if server is None else f"connecting to {server.shown}"
        )

    def unload(self, reason: str) -> None:
        """Free the memory of the models, or leave the server, until the next question."""
        server = self.pair.server
        if self.session is None:
            self.view.notify("No model is loaded." if server is None else "Not connected.")
            return
        self._end_session()
        self.facts, self.is_unloaded = None, True
        self.view.say("", "progress")
        words = f"{reason} The next question loads {self.pair.name} again."
        if server is not None:
            words = (
                f"Disconnected: {server.shown} keeps its model. The next question connects again."
            )
        self.view.say(words)
        self.view.show_state()

    def close(self, seconds: float) -> None:
        """End the engine; kill it if that takes longer than some seconds."""
        if (ending := self._end_session()) is not None:
            ending.wait(seconds)

    def progressed(self, stage: Stage, share: float) -> None:
        """Show the progress of loading the pair, measuring it or reading a prompt.

        The engine reports it again while it stands still: then the seconds move.
        """
        bar = f"{'█' * round(BAR_WIDTH * share):░<{BAR_WIDTH}}"
        seconds = self._clock.seconds(stage)
        words = f"{STAGES[stage]} {bar} {percent(share)}{waited(seconds)}"
        if share >= 1:  # the file is read; making the contexts reports no progress
            words = f"{READY}{waited(seconds)}"
        if self.pair.server is not None:  # which does not report any
            words = f"waiting for {self.pair.server.shown}{waited(seconds)}"
        is_over = share >= 1 and self.facts is not None
        if is_over:
            self._clock.reset()
        self.view.say("" if is_over else words, "progress")

    def measured(self, facts: EngineFacts) -> None:
        """Show what the engine has measured."""
        self.facts = facts
        self.view.show_state()

    def loaded(self, facts: EngineFacts) -> None:
        """Show what the engine reports about the pair."""
        self.facts, self._ending = facts, None  # the session before has freed its memory by now
        self._clock.reset()
        self.view.say("", "progress")
        self.view.say("; ".join(facts.notices))
        if self.pair.keep is not None:
            save = partial(self._save, self.pair.keep, facts)
            Thread(target=save, name="keep").start()  # it waits for other programs
        if self.pair.server is None:
            self.remember(self.pair.name, self.pair.loading)
        self.view.show_state()

    def lost(self, error: SpecchatError) -> None:
        """Show why there is no engine."""
        self.session, self.has_failed = None, True
        self._clock.reset()
        self.view.say("", "progress")
        self._lost = str(error)
        self._say_lost()
        self.view.show_state()

    def tell(self, error: SpecchatError | None) -> None:
        """Note that an answer says why it failed: the status line then has only what helps."""
        self._told = str(error or "")
        self._say_lost()

    def _say_lost(self) -> None:
        if not self._lost:
            return
        restart, models = self.key_of("restart"), self.key_of("models")
        again = "restarts the engine" if self.facts else "tries again"
        if self.pair.server is not None:
            again = "connects again"
        ways = f"The next question or {restart} {again}, {models} switches to another pair."
        is_told = self._told == self._lost
        self.view.say(ways if is_told else f"{self._lost.rstrip('.')}. {ways}")

    def _save(self, keep: Callable[[EngineFacts], str], facts: EngineFacts) -> None:
        """Save the pair, on a thread of its own."""
        try:
            notice = keep(facts)
        except SpecchatError as error:
            self.post(self.view.report, error)
        else:
            if notice:
                self.post(self.view.notify, notice)
