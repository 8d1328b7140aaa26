"""The schema switch: what answers look like in this session, as JSON Schema or fields."""

from dataclasses import dataclass

from specchat.chat.safe_text import in_one_line
from specchat.errors import InvalidOption
from specchat.tui.controllers.answers import Answers
from specchat.tui.main_view import MainView

OFF = "off"


@dataclass(frozen=True, slots=True)
class SchemaSwitch:
    """Sets what the next answers look like."""

    view: MainView
    answers: Answers

    def act(self, text: str = "") -> None:
        """Set the schema from the next answer on, or leave it out; without a text, say what is set.

        A text is a file, JSON, fields such as `name, age int`, the word `json`, or `off`.
        """
        text = text.strip()
        if not text:
            shown = in_one_line(self.answers.schema)
            state = f"Answers follow the schema {shown}." if shown else "Answers have no schema."
            self.view.notify(f"{state} /schema name, age int sets one, /schema off leaves it out.")
            self.view.put_back("/schema ")
            return
        try:
            self.answers.set_schema("" if text.lower() == OFF else text)
        except InvalidOption as error:
            self.view.put_back(f"/schema {text}")
            self.view.notify(str(error), severity="warning")
            return
        self.view.show_state()
        what = "follow this schema" if self.answers.schema else "have no schema"
        self.view.notify(f"Answers {what} from the next one on.")
