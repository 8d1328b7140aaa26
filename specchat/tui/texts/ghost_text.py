"""The draft of a step ahead of an answer's text, before and after the target's verdict."""

from typing import NamedTuple

from specchat.decoding.chunk import Chunk
from specchat.safe_text import harmless
from specchat.tui.texts.step_drafts import draft_of


class Ghost(NamedTuple):
    """Text behind what is shown of an answer, whose last `held` characters are not shown yet."""

    text: str
    held: int = 0
    is_rejected: bool = False


def before_verdict(step: Chunk, answer: str) -> Ghost | None:
    """Return the draft of the step that ends an answer so far, which holds back what it wrote.

    None for a step without a draft, for one that wrote anything but text of the answer, and where
    the line behind which the draft would stand is empty or in a table.
    """
    texts, _ = draft_of(step)
    shown = _line(texts)
    is_answer = all(piece.kind == "answer" for piece in step.pieces)
    if not shown or not is_answer or step.finish or step.text != "".join(step.texts):
        return None
    end = len(answer) - len(step.text)
    line = answer[answer.rfind("\n", 0, end) + 1 : end].lstrip()
    return Ghost(shown, held=len(step.text)) if line and line[0] != "|" else None


def after_verdict(step: Chunk) -> Ghost | None:
    """Return the rejected end of a step's draft; None if there is none on the line."""
    texts, num_kept = draft_of(step)
    shown = _line(texts[num_kept:])
    is_cut = "\n" in step.text or not shown
    return None if is_cut else Ghost(shown, is_rejected=True)


def _line(texts: list[str]) -> str:
    """Return the texts as far as they stand on one line."""
    return harmless("".join(texts).partition("\n")[0]).rstrip()
