"""The texts of the models screen: a row for each pair, and the details of the highlighted one."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from specchat.catalogue.outlook import EXPLAINED, Outlook
from specchat.chat.answer_statistics import AnswerTotals
from specchat.safe_text import in_one_line
from specchat.tui.controllers.pulls import PullState
from specchat.tui.setup import Offer
from specchat.wording import progress_percent, rate_text, speedup_text

GAP = "  "
MIN_NAME, MAX_NAME, MIN_DRAFTS, MAX_DRAFTS = 12, 30, 18, 30
QUANTISATION_WIDTH, SIZE_WIDTH, SPEED_WIDTH, BAR_WIDTH = 7, 8, 16, 10
MEMORY_WIDTH, NEED_WIDTH = 19, 9
TOO_LARGE, UNUSABLE, FAILED = "too large", "cannot load", "failed"
HEADINGS = ("model", "drafts from", "quant", "size", "needs", "tokens/s here", "")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A pair with all that is known of it; `is_read` is true once its files were read."""

    offer: Offer
    outlook: Outlook
    is_read: bool = False
    is_used: bool = False
    pull: PullState | None = None
    measured: AnswerTotals | None = None
    siblings: Sequence["ModelRow"] = field(default=())
    """The same model in other quantizations on this machine."""

    @property
    def title(self) -> str:
        """The name to show."""
        return in_one_line(self.offer.title or self.offer.name)

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, or a server runs it: it can be used at once."""
        return self.offer.choose is not None

    @property
    def is_arriving(self) -> bool:
        """Whether it is being downloaded."""
        return self.pull is not None and self.pull.stage == "running"

    @property
    def is_wanted(self) -> bool:
        """Whether it may be downloaded: it is not here yet."""
        return not (self.is_here or self.is_arriving)

    @property
    def searched(self) -> str:
        """All words that a search finds it by."""
        offer, outlook = self.offer, self.outlook
        own = (offer.name, offer.title, offer.description, offer.licence)
        return " ".join([*own, outlook.target, outlook.drafts, outlook.quantisation, self.note])

    @property
    def trouble(self) -> str:
        """What keeps the user from it, in short; empty if nothing does."""
        if self.pull is not None and self.pull.stage == "failed":
            return FAILED
        if self.outlook.fits:
            return ""
        return TOO_LARGE if self.outlook.memory else UNUSABLE

    @property
    def note(self) -> str:
        """The most important fact in a word or two, empty for none."""
        if self.is_used:
            return "in use"
        is_advice = self.offer.is_recommended and not self.is_here
        return self.trouble or "recommended" * is_advice

    @property
    def speed(self) -> str:
        """How fast it was here, or is predicted to be, in short; empty if neither is known."""
        if self.measured is None or not self.measured.tokens_per_second:
            return f"≈{self.outlook.rate:.0f}" if self.outlook.rate else ""
        rate, gain = f"{self.measured.tokens_per_second:.0f}", _gain_text(self.measured)
        return f"{rate}, {gain}" if gain else rate

    def details(self) -> Content:
        """Return all that is known of the pair, a fact a line, the most important ones first."""
        offer, outlook = self.offer, self.outlook
        name = in_one_line(outlook.target) if offer.is_server else self.title
        facts = [outlook.quantisation, offer.size, offer.licence, self.note]
        lines = [
            Content.assemble(
                (name, "bold"), *[f" · {in_one_line(fact)}" for fact in facts if fact]
            ),
            *self._urgent(),
            Content(self._drafting()),
            Content(_sentence(in_one_line(outlook.head))),
            Content(self._measured() or _sentence(outlook.speed)),
            Content(_sentence(in_one_line(offer.description))),
            Content(self._siblings()),
        ]
        return Content("\n").join([line for line in lines if line])

    def _urgent(self) -> list[Content]:
        """Return the state of a download, then the memory, or why the pair cannot be used."""
        offer, outlook, lines = self.offer, self.outlook, []
        if self.pull is not None and self.pull.stage in {"running", "failed"}:
            lines.append((self.pull.words, "$text-error" * (self.pull.stage == "failed")))
        elif offer.share and not self.is_here:
            share = progress_percent(offer.share)
            lines.append((f"{share} downloaded; the download resumes there", ""))
        if outlook.memory:
            context = f" for a context of {outlook.context} tokens" * bool(outlook.context)
            verdict = "" if outlook.fits else f"{TOO_LARGE}: "
            words = _sentence(f"{verdict}needs {outlook.memory}{context}")
            lines.append((words, "" if outlook.fits else "$text-error"))
        elif self.is_here and not self.is_read and not offer.is_server:
            lines.append(("Reading the file…", "$text-muted"))
        if outlook.notice:
            lines.append((outlook.notice, "$text-warning"))
        return [Content.styled(in_one_line(words), style) for words, style in lines]

    def _drafting(self) -> str:
        drafts = in_one_line(self.outlook.drafts)
        explained = f": {EXPLAINED[drafts]}" if drafts in EXPLAINED else ""
        return f"Drafts come from {drafts}{explained}" if drafts else ""

    def _measured(self) -> str:
        found = self.measured
        if found is None or not found.tokens_per_second:
            return ""
        gain = _gain_text(found)
        words = f", {gain} with drafts" if gain else ""
        return f"Measured here: {rate_text(found.tokens_per_second)}{words}"

    def _siblings(self) -> str:
        known = [
            f"{sibling.outlook.quantisation} ({sibling.offer.size})" for sibling in self.siblings
        ]
        return f"Also here as {in_one_line(', '.join(known))}" if known else ""


@dataclass(frozen=True, slots=True)
class Columns:
    """The widths of the columns in cells; 0 leaves one out.

    Without a column for the note, it stands in that of the speed.
    """

    name: int
    drafts: int = 0
    memory: int = 0
    note: int = 0

    @classmethod
    def fitting(cls, rows: Iterable[ModelRow], width: int) -> "Columns":
        """Return the columns for these rows in a list of this width."""
        rows = list(rows)
        memory, note = (
            MEMORY_WIDTH if width >= 86 else NEED_WIDTH * (width >= 62),
            11 * (width >= 116),
        )
        fixed = (QUANTISATION_WIDTH, SIZE_WIDTH, memory, SPEED_WIDTH, note)
        room = width - 2 - sum(each + len(GAP) for each in fixed if each)
        longest = max((cell_len(row.title) for row in rows), default=0)
        name = max(MIN_NAME, min(longest, room, MAX_NAME))
        widest = max((cell_len(row.outlook.drafts) for row in rows), default=0)
        drafts = min(room - name - len(GAP), widest, MAX_DRAFTS)
        if drafts < MIN_DRAFTS and room - len(GAP) - MIN_DRAFTS >= min(longest, MAX_NAME // 2):
            drafts, name = MIN_DRAFTS, room - len(GAP) - MIN_DRAFTS
        return cls(name, drafts * (drafts >= MIN_DRAFTS), memory=memory, note=note)

    def heading(self) -> Content:
        """Return the names of the columns."""
        return Content.assemble(GAP, self._line([(each, "") for each in HEADINGS]))

    def row(self, row: ModelRow) -> Content:
        """Return the row of a pair."""
        is_installed = row.is_here and not row.offer.is_server
        mark = "●" if row.is_used else "✔" if is_installed else "↓" if row.is_arriving else " "
        if row.is_arriving and row.pull is not None:
            bar = f"{'█' * round(row.pull.share * BAR_WIDTH):░<{BAR_WIDTH}}"
            name = f"{mark} {_cell(row.title, self.name)}{GAP}"
            share = progress_percent(row.pull.share)
            return Content.assemble(name, (bar, "$text-success"), f" {share}")
        outlook, note = row.outlook, (row.note, "bold")  # colours would be lost under the cursor
        memory = re.sub(r"( GPU)? memory.*", "", outlook.memory)
        memory = memory if self.memory != NEED_WIDTH else _needed(memory)
        known = [row.title, outlook.drafts, outlook.quantisation, row.offer.size, memory]
        is_pressing = not self.note and (row.trouble or (row.note and not row.measured))
        cells = [*((each, "") for each in known), note if is_pressing else (row.speed, ""), note]
        return Content.assemble(f"{mark} ", self._line(cells))

    def _line(self, cells: Sequence[tuple[str, str]]) -> Content:
        """Return texts with their styles, each in its column."""
        known = (self.name, self.drafts, QUANTISATION_WIDTH, SIZE_WIDTH, self.memory)
        shown = zip(cells, (*known, SPEED_WIDTH, self.note), strict=True)
        parts = [
            Content.styled(_cell(text, width), style) for (text, style), width in shown if width
        ]
        return Content(GAP).join(parts)


def _gain_text(totals: AnswerTotals) -> str:
    """Return what drafts brought; empty if that is not known."""
    error = totals.speedup_error or 0.0
    return speedup_text(totals.speedup, error=error) if totals.speedup else ""


def _cell(text: str, width: int) -> str:
    """Return a text in exactly so many cells, with an ellipsis where it is cut."""
    line = in_one_line(text)
    if cell_len(line) > width:
        line = f"{set_cell_size(line, width - 1).rstrip()}…"
    return set_cell_size(line, width)


def _needed(memory: str) -> str:
    """Return the memory needed alone: "8.1 GB" of "8.1 of 21.8 GB"."""
    needed, _, free = memory.partition(" of ")
    return needed if needed.endswith("B") else f"{needed} {free[-2:]}".strip()


def _sentence(words: str) -> str:
    """Return words with a capital letter first."""
    return words[:1].upper() + words[1:]
