"""The controllers of a chat, which hold the state that its screen shows; no Textual here."""

from specchat.chat.store import Store
from specchat.connection.opening import LoadPair
from specchat.tui.controllers.adviser import Adviser
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.context_report import ContextReport
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.hint import ModelHint
from specchat.tui.controllers.idle import IdleUnloader
from specchat.tui.controllers.image_checks import ImageChecks
from specchat.tui.controllers.message_size import MessageSize
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.controllers.questions import Questions
from specchat.tui.controllers.race_offer import RaceOffer
from specchat.tui.controllers.races import Races
from specchat.tui.controllers.serving import Serving
from specchat.tui.controllers.session import Post
from specchat.tui.controllers.titles import Titles
from specchat.tui.controllers.undoable_changes import UndoableChanges
from specchat.tui.controllers.unsent import Unsent
from specchat.tui.setup import Remember, Setup, forget

BLOCKED_SECONDS = 0.05
"""How long the screen may wait while another program writes to the store."""


class ChatState:
    """All controllers of a chat, each made with those that it needs."""

    def __init__(
        self,
        view: ChatView,
        setup: Setup,
        post: Post,
        load: LoadPair,
        remember: Remember = forget,
    ) -> None:
        """Make them; nothing is loaded yet. `remember` is called with each pair that was loaded."""
        self.setup, self.key_of = setup, setup.key_of
        store, key_of = Store(setup.history, BLOCKED_SECONDS), setup.key_of
        self.conversations = chat = Conversations(store, setup.pair.name, setup.system_prompt)
        self.pair_controller = pair = PairController(view, setup.pair, post, load, key_of, remember)
        self.options = options = AnswerOptions(chat, pair)
        self.changes = UndoableChanges(chat, options)
        self.answers = answers = Answers(view, chat, pair, options, key_of)
        answers.repeat_limit = setup.chat.repeat_limit
        answers.ghosts.turn(is_on=setup.screen.ghost)
        checks = ImageChecks(view, pair, post, key_of, store.images.keep)
        self.questions = questions = Questions(view, chat, pair, answers, checks, key_of)
        self.adviser = Adviser(view, answers, options, pair, setup.other_drafts, post, key_of)
        self.races = races = Races(view, chat, pair, answers, checks)
        self.race_offer = RaceOffer(chat, answers, races, key_of, setup.screen.offer_race)
        self.message_size = MessageSize(view, chat, questions, answers, options, pair, checks, post)
        self.context_report = ContextReport(chat, answers, pair)
        self.unsent = Unsent(view, setup.history, post)
        self.pulls = Pulls(view, post)
        self.hint = ModelHint(self.pulls, key_of, is_first_run=setup.is_first_run)
        self.serving = Serving(view, pair, post, setup.server)
        self.idle = IdleUnloader(view, answers, pair, self.serving, setup.chat.unload_after)
        self.titles = Titles(view, chat, answers, pair)
        answers.on_end = self._answered

    def _answered(self, number: int) -> None:
        """Offer the race of an answer that has ended, and title its conversation."""
        self.race_offer.answered(number)
        if self.setup.screen.model_titles:
            self.titles.answered()
