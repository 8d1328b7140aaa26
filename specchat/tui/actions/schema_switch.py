"""The schema switch: what the answers of this conversation look like, as JSON Schema or fields."""

from dataclasses import dataclass

from specchat.safe_text import in_one_line
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.texts.schema_text import read_schema

OFF = "off"


@dataclass(frozen=True, slots=True)
class SchemaSwitch:
    """Sets what the next answers look like."""

    view: MainView
    state: ChatState

    def act(self, text: str = "") -> None:
        """Set the schema from the next answer on, or leave it out; without a text, say what is set.

        A text is a file, JSON, fields such as `name, age int`, the word `json`, or `off`. Raises
        InvalidOption for another.
        """
        text = text.strip()
        if not text:
            self._say()
            return
        schema = None if text.lower() == OFF else read_schema(text)
        self.state.conversations.set_schema(schema)
        self.view.show_state()
        what = "follow this schema" if schema else "have no schema"
        self.view.notify(f"Answers {what} from the next one on.")

    def _say(self) -> None:
        schema = self.state.conversations.schema
        shown = f"follow the schema {in_one_line(schema.typed)}" if schema else "have no schema"
        hint = "/schema name, age int sets one, /schema off leaves it out."
        self.view.notify(f"Answers {shown}. {hint}")
        self.view.rewrite("/schema ")
