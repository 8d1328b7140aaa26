"""The header, with what is open and what it takes: title, model, GPU memory, context; no widgets.

The order is the same on every screen. On a narrow one the parts get shorter before one is left out.
"""

from collections.abc import Sequence
from itertools import product

from rich.cells import cell_len
from rich.text import Text
from textual.content import Content

from specchat.hub.client import is_offline
from specchat.safe_text import harmless, in_one_line
from specchat.tui.controllers.chat_state import ChatState
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
    return Content.assemble((shown.plain, "bold $foreground"), " " * gap, right)


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
    forms = [[*badge, model, memory, gauge] for badge, model, memory, gauge in shortenings]
    forms.sort(key=lambda parts: -_width(parts))
    shown = next((parts for parts in forms if _width(parts) <= room), forms[-1])
    style = "$text-warning" if _context_share(chat) >= FILLING else ""
    parts = [Content.styled(part, style * (part in context)) for part in shown if part]
    return Content(SEPARATOR).join(parts)


def _width(parts: Sequence[str]) -> int:
    return cell_len(SEPARATOR.join(filter(None, parts)))


def _gpu_forms(chat: ChatState) -> tuple[str, ...]:
    """Return the GPU memory in use, in words and in short; empty without layers on a GPU."""
    facts = chat.pair_controller.facts
    if facts is None or not facts.gpu_total:
        return ("",)
    used, total = size_text(facts.gpu_used), size_text(facts.gpu_total)
    return f"GPU {used} of {total}", f"GPU {percent(facts.gpu_used / facts.gpu_total)}"


def _context_share(chat: ChatState) -> float:
    facts = chat.pair_controller.facts
    if facts is None:
        return 0.0
    is_kept = chat.answers.here is not None or facts.keeps_reasoning
    return chat.answers.figures.context_share(facts.context, with_reasoning=is_kept)


def _context_forms(chat: ChatState) -> tuple[str, ...]:
    """Return how full the context is, as a gauge and in short; empty until a model is loaded."""
    facts = chat.pair_controller.facts
    if facts is None or not facts.context:
        return ("",)
    share = _context_share(chat)
    full = min(GAUGE_WIDTH, int(GAUGE_WIDTH * share + 0.5))
    gauge = "▰" * full + "▱" * (GAUGE_WIDTH - full)
    return (
        f"context {gauge} {percent(share)} of {facts.context}",
        f"context {gauge} {percent(share)}",
        f"context {percent(share)}",
    )
