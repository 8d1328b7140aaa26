"""The state of the chat that its screen shows; no Textual here."""

from dataclasses import dataclass

from specchat.tui.controllers.adviser import Adviser
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.hint import ModelHint
from specchat.tui.controllers.message_size import MessageSize
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.controllers.serving import Serving


@dataclass(frozen=True, slots=True)
class ChatState:
    """The controllers that hold the state."""

    conversations: Conversations
    pair_controller: PairController
    pulls: Pulls
    hint: ModelHint
    options: AnswerOptions
    answers: Answers
    adviser: Adviser
    message_size: MessageSize
    serving: Serving
