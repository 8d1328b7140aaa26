"""What `specchat serve` shows of its requests: rows of a table, totals, lines of a log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from time import time
from typing import TYPE_CHECKING

from specchat.safe_text import in_one_line
from specchat.wording import (
    accepted_share,
    duration_text,
    percent,
    speedup_cell,
    speedup_text,
)

if TYPE_CHECKING:
    from specchat.server.activity import ServedRequest, Totals

GAP = "  "
BAR_WIDTH = 6
LEAST_SHARED = 1.05
"""From this many answers a pass on, the totals say how many share one."""
FULL, EMPTY = "▰", "▱"
LIVE, CANCELLED = ">", "x"
"""The marks before an answer in progress, and before one that was cancelled."""
REQUESTS = {"chat": "chat", "text": "text", "responses": "respond", "messages": "message"}
"""The names of requests in a table, by their API."""
FAILED = "failed"


class Style(Enum):
    """How a line looks, as a code of the terminal."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    WRITING = "32"
    WAITING = "33"
    TROUBLE = "31"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen, with shorter forms for when it does not fit."""

    text: str
    style: Style = Style.PLAIN
    shorter: Sequence[str] = ()

    def painted(self, width: int, *, has_colours: bool) -> str:
        """Return the longest form that fits into a width, or the shortest cut, with its style."""
        forms = (self.text, *self.shorter)
        text = next((variant for variant in forms if len(variant) <= width), forms[-1])
        text = cut(text, width)
        if not has_colours or self.style is Style.PLAIN:
            return text
        return f"\x1b[{self.style.value}m{text}\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; those of the lowest rank go first where there is no room."""

    title: str
    width: int
    rank: int
    cell: "Callable[[ServedRequest], str]"
    is_left: bool = False

    def aligned(self, text: str) -> str:
        """Return a cell's text in the column's width."""
        text = cut(text, self.width)
        return text.ljust(self.width) if self.is_left else text.rjust(self.width)


def cut(text: str, width: int) -> str:
    """Return a text of at most a width, harmless and on one line."""
    text = in_one_line(text)
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def columns_for(width: int) -> list[Column]:
    """Return the columns that fit into a width; the narrowest screen keeps five."""
    shown = list(COLUMNS)
    while _width(shown) > width and len(shown) > 5:
        least = min(column.rank for column in shown)
        index = next(index for index, column in enumerate(shown) if column.rank == least)
        narrower = NARROWER.get(shown[index].title)
        if narrower is not None and narrower.width < shown[index].width:
            shown[index] = narrower
        else:
            del shown[index]
    return shown


def head_line(columns: Sequence[Column]) -> Line:
    """Return the titles of the columns."""
    return Line("  " + GAP.join(column.aligned(column.title) for column in columns), Style.DIM)


def request_line(request: "ServedRequest", columns: Sequence[Column], rank: int = 0) -> Line:
    """Return the row of a request; `rank` is its position in the queue, counted from 1."""
    if request.state in {"waiting", "reading"}:
        return _early_line(request, columns, rank)
    if request.finish == FAILED:
        reason = f"failed: {request.error}"
        return Line(f"  {_names(request, columns)}{reason}", Style.TROUBLE)
    cells = GAP.join(column.aligned(column.cell(request)) for column in columns)
    if request.state != "over":
        return Line(f"{LIVE} {cells}", Style.WRITING)
    if request.finish == "cancelled":
        return Line(f"{CANCELLED} {cells}", Style.DIM)
    return Line(f"  {cells}")


def _early_line(request: "ServedRequest", columns: Sequence[Column], rank: int) -> Line:
    """Return the row of a request without tokens yet: its wait, or how much of it is read."""
    waited = duration_text(max(0.0, time() - request.began))
    if request.state == "waiting":
        status = "next" if rank == 1 else f"place {rank}"
        return Line(f"  {_names(request, columns)}waiting {waited}, {status}", Style.WAITING)
    read = f"reading the prompt, {percent(request.share)}"
    return Line(f"{LIVE} {_names(request, columns)}{read}", Style.WRITING)


def _names(request: "ServedRequest", columns: Sequence[Column]) -> str:
    """Return the first cells of a row, which say whose request it is."""
    shown = [column for column in columns if column.title in {"#", "client", "request"}]
    return GAP.join(column.aligned(column.cell(request)) for column in shown) + GAP


def totals_line(totals: "Totals", live: "Sequence[ServedRequest]" = ()) -> Line:
    """Return the totals of all finished requests, and how many are in progress."""
    num_waiting = sum(each.state == "waiting" for each in live)
    counts = {"running": len(live) - num_waiting, "waiting": num_waiting}
    now = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    if not totals.num_requests:
        return Line(now or "no requests yet", Style.DIM)
    noun = "request" if totals.num_requests == 1 else "requests"
    count = f"{totals.num_requests:,} {noun}"
    sums = totals.sums
    accepted = f"{percent(sums.acceptance_rate)} accepted" if sums.drafted else ""
    per_step = f"{sums.tokens_per_step:.1f} per step" if sums.steps else ""
    together = _together(totals)
    speedup = speedup_cell(totals.speedup, totals.speedup_error) if totals.own_s else ""
    saved = _saved(totals) if totals.own_s else ""
    against = f"{saved} against plain decoding" if saved else ""
    tokens = f"{sums.generated_tokens:,} tokens"
    forms = [
        (count, now, tokens, accepted, per_step, together, speedup, against),
        (count, now, tokens, accepted, per_step, together, speedup, saved),
        (count, now, accepted, per_step, together, speedup, saved),
        (count, now, accepted, per_step, speedup, saved),
        (count, now, accepted, speedup, saved),
        (count, accepted, speedup, saved),
        (count, accepted, saved),
    ]
    first, *shorter = ("   ".join(filter(None, parts)) for parts in forms)
    return Line(first, Style.BOLD, shorter)


def _together(totals: "Totals") -> str:
    """Return what passes are that answers share, and how much faster than one by one."""
    if totals.answers_per_pass < LEAST_SHARED:
        return ""
    gain = f", {speedup_text(totals.joint_gain, 2)}" if totals.joint_gain else ""
    return f"{totals.answers_per_pass:.1f} answers, {totals.rows_per_pass:.1f} rows a pass{gain}"


def _saved(totals: "Totals") -> str:
    word = "saved" if totals.saved_s >= 0 else "lost"
    return f"{word} {duration_text(abs(totals.saved_s))} of {duration_text(totals.plain_s)}"


def log_line(request: "ServedRequest") -> str:
    """Return a log's line about a finished request, without any text of prompt or answer."""
    statistics = request.statistics
    parts = [
        f"{request.number} {request.client} {request.api}: {_tokens(request)} tokens",
        f"{statistics.tokens_per_second:.0f} tokens/s" if statistics.decode_s else "",
        accepted_share(statistics.acceptance_rate, statistics.repeated) * bool(statistics.drafted),
        f"{statistics.tokens_per_step:.1f} per step" if statistics.drafted else "",
        _speedup(request),
        f"waited {duration_text(request.waited_s)}" if request.waited_s >= 1 else "",
        str(request.finish),
    ]
    return ", ".join(filter(None, parts))


def _tokens(request: "ServedRequest") -> str:
    statistics = request.statistics
    return f"{statistics.prompt_tokens:,} > {statistics.generated_tokens:,}"


def _rate(request: "ServedRequest") -> str:
    rate = request.statistics.tokens_per_second
    if not rate:
        return "-"
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def _accepted(request: "ServedRequest") -> str:
    statistics = request.statistics
    return percent(statistics.acceptance_rate) if statistics.drafted else "-"


def _accepted_bar(request: "ServedRequest") -> str:
    if not request.statistics.drafted:
        return "-"
    full = round(BAR_WIDTH * request.statistics.acceptance_rate)
    return f"{FULL * full}{EMPTY * (BAR_WIDTH - full)} {_accepted(request):>5}"


def _per_step(request: "ServedRequest") -> str:
    statistics = request.statistics
    return f"{statistics.tokens_per_step:.1f}" if statistics.steps else "-"


def _speedup(request: "ServedRequest") -> str:
    gain = request.statistics.gain
    return speedup_cell(gain.speedup, gain.error) if gain.is_sound else ""


COLUMNS = (
    Column("#", 4, 9, lambda request: str(request.number)),
    Column("client", 9, 8, lambda request: request.client, is_left=True),
    Column("request", 7, 1, lambda request: REQUESTS.get(request.api, request.api), is_left=True),
    Column("tokens", 14, 7, _tokens),
    Column("t/s", 5, 6, _rate),
    Column("accepted", BAR_WIDTH + 6, 0, _accepted_bar),
    Column("per step", 8, 2, _per_step),
    Column("speedup", 7, 3, _speedup),
)
NARROWER = {"accepted": Column("accepted", 8, 5, _accepted)}
"""The columns that replace wider ones where there is little room."""


def _width(columns: Sequence[Column]) -> int:
    return 2 + sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)
