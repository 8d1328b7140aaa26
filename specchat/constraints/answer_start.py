"""Where the answer to a conversation begins."""

from typing import NamedTuple

from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import State


class AnswerStart(NamedTuple):
    """The state of a chat format in which an answer begins.

    If it `goes_on`, it continues the conversation's last message.
    """

    form: ChatFormat
    state: State = "start"
    goes_on: bool = False
