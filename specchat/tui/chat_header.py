"""The header, with what is open: title, model, context, then what else there is; no widgets.

The first three are links. The order is the same on every screen; on a narrow one the parts get
shorter before one is left out.
"""

from collections.abc import Sequence
from itertools import product

from rich.cells import cell_len
from rich.text import Text
from textual.content import Content
from textual.style import Style

from specchat.hub.offline import is_offline
from specchat.safe_text import harmless, in_one_line
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.widgets.header_line import COMMAND
from specchat.wording import percent, size_text

SEPARATOR = " · "
MIN_TITLE_WIDTH, MIN_NAME_WIDTH = 12, 12
GAUGE_WIDTH, BETWEEN = 6, 2
UNLOADED, DISCONNECTED = "unloaded", "disconnected"
FILLING = 0.8
"""The share of the context from which the gauge warns."""


def header(chat: ChatState, width: int, *, is_saved: bool) -> Content:
    """Return the header for this width: the title at the left, all else at the right."""
    title = in_one_line(harmless(chat.conversations.title or "")) or "new chat"
    is_elsewhere = chat.answers.current is not None and chat.answers.here is None
    badges = [
        "another chat answers" * is_elsewhere,
        chat.serving.summary(),
        chat.pulls.summary(),
        *["not saved"] * (not is_saved),
        *["offline"] * is_offline(),
    ]
    right = _right_part(
        chat, [badge for badge in badges if badge], width - MIN_TITLE_WIDTH - BETWEEN
    )
    shown = Text(title)
    shown.truncate(max(1, width - right.cell_length - BETWEEN), overflow="ellipsis")
    gap = max(0, width - shown.cell_len - right.cell_length)
    start = _link(shown.plain, "rename").stylize("bold $foreground")
    return Content.assemble(start, " " * gap, right)


def _right_part(chat: ChatState, badges: Sequence[str], room: int) -> Content:
    """Return the longest form of the right part that fits into the room."""
    pair = chat.pair_controller
    name = in_one_line(harmless(pair.pair.name))
    short = Text(name)
    short.truncate(MIN_NAME_WIDTH, overflow="ellipsis")
    gpu, context = _gpu_forms(chat), _context_forms(chat)
    if pair.is_unloaded:
        context = (UNLOADED if pair.pair.server is None else DISCONNECTED,)
    shortenings = product((badges, badges[:1], ()), (name, short.plain), gpu, context)
    forms = [[model, gauge, memory, *badge] for badge, model, memory, gauge in shortenings]
    forms.sort(key=lambda parts: -_width(parts))
    shown = next((parts for parts in forms if _width(parts) <= room), forms[-1])
    model, gauge, *more = shown
    is_full = chat.context_report.share >= FILLING
    parts = [
        _link(model, "models"),
        _link(gauge, "context").stylize("$text-warning" if is_full else ""),
        *map(Content, more),
    ]
    return Content(SEPARATOR).join([part for part in parts if part.plain])


def _link(words: str, command: str) -> Content:
    """Return words that run a command; names in them are not read as markup."""
    return Content.styled(words, Style.from_meta({COMMAND: command}))


def _width(parts: Sequence[str]) -> int:
    return cell_len(SEPARATOR.join(filter(None, parts)))


def _gpu_forms(chat: ChatState) -> tuple[str, ...]:
    """Return the GPU memory in use, in words and in short; empty without layers on a GPU."""
    facts = chat.pair_controller.facts
    if facts is None or not facts.gpu_total:
        return ("",)
    used, total = size_text(facts.gpu_used), size_text(facts.gpu_total)
    return f"GPU {used} of {total}", f"GPU {percent(facts.gpu_used / facts.gpu_total)}"


def _context_forms(chat: ChatState) -> tuple[str, ...]:
    """Return how full the context is, as a gauge and in short; empty until a model is loaded."""
    facts = chat.pair_controller.facts
    if facts is None or not facts.context:
        return ("",)
    share = chat.context_report.share
    full = min(GAUGE_WIDTH, int(GAUGE_WIDTH * share + 0.5))
    gauge = "▰" * full + "▱" * (GAUGE_WIDTH - full)
    return (
        f"context {gauge} {percent(share)} of {facts.context}",
        f"context {gauge} {percent(share)}",
        f"context {percent(share)}",
    )
