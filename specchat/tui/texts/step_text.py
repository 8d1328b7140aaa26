"""What the steps screen shows of one step of an answer; no widgets here.

A step is what one pass of the target brought: the drafted tokens that it kept, one of its own, and
those that a grammar forced after them.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.style import Style

from specchat.decoding.chunk import Chunk
from specchat.drafter_registry import CHOSEN, GRAMMAR, TARGET, origin, origins
from specchat.safe_text import harmless
from specchat.tui.texts.cards import MUTED, REJECTED, origin_style, packed
from specchat.tui.texts.figure_words import spark
from specchat.tui.texts.step_drafts import is_own, num_accepted, num_kept
from specchat.tui.texts.step_tokens import (
    DROPPED,
    FORCED,
    KEPT,
    OWN,
    tokens_of,
    visible,
)
from specchat.wording import percent

ALTERNATIVE = "alternative"
"""The key of an alternative's position in the metadata of its style."""
HERE = Style.from_meta({"here": True})
"""Marks the token under the cursor in the text."""
BAR_WIDTH = 12
CUT = "… "
"""Stands before a text whose beginning is left out."""
END = "(end of answer)"
"""Stands for the token that ends a turn, which has no text."""
OFFERS = (
    "Most probable here at temperature 1 · press 1-6 to go on from here with it",
    "Most probable here at temperature 1 · 1-6 goes on with it",
    "Most probable at temperature 1 · 1-6 goes on",
)
"""What stands above the alternatives, the longest form first: these are the model's own
probabilities, whatever the answer was sampled with."""


def heading(steps: Sequence[Chunk], place: int, width: int) -> Content:
    """Return the position in the answer with its steps as bars, and what the step did.

    The height of a bar stands for the number of tokens.
    """
    number = f"step {place + 1} of {len(steps)}"
    room = width - len(number) - 1
    counts = [len(step.tokens) for step in steps]
    first = max(0, min(place - room // 2, len(counts) - room))
    bars, here = spark(counts[first : first + room], max(counts)), place - first
    strip = Content.assemble(
        (bars[:here], MUTED), (bars[here], "bold $text-primary"), (bars[here + 1 :], MUTED)
    )
    title = Content.assemble((number, "bold"), " ", strip)
    return Content("\n").join([title, Content(story(steps[place]))])


def story(step: Chunk) -> str:
    """Return what happened in a step, in a sentence or two."""
    forced = step.origins.count(GRAMMAR.name)
    if forced == len(step.texts):
        return f"The grammar forced the first {_tokens(forced)}: that took no pass."
    within = step.origins[: num_kept(step)].count(GRAMMAR.name)
    parts = [_own_story(step)]
    if within:
        parts.append(f"The grammar forced {within} in between.")
    if forced > within:
        parts.append(f"The grammar forced the next {_tokens(forced - within)}.")
    return " ".join(parts)


def _tokens(count: int) -> str:
    return "token" if count == 1 else f"{count} tokens"


def _own_story(step: Chunk) -> str:
    """Return what drafter and target did in a step."""
    kept = num_accepted(step)
    drafted = kept + len(step.rejected)
    if step.origins[-1] == CHOSEN:
        return "You chose the last token; the answer went on from there."
    if step.tree:
        return _story_of_tree(step)
    if not drafted:
        return "Nothing was drafted: the target wrote 1 token in one pass."
    start = f"{drafted} token{'s' * (drafted > 1)} drafted and checked in one pass"
    if step.rejected:
        how_many = (
            f"accepted {kept} and replaced the next one"
            if kept
            else "accepted none and wrote its own"
        )
        return f"{start}: the target {how_many}."
    if is_own(step):
        return (
            f"{start}: the target accepted {'all' if drafted > 1 else 'it'} and added 1 of its own."
        )
    return f"{start}: the target accepted {'all' if drafted > 1 else 'it'}."


def _story_of_tree(step: Chunk) -> str:
    """Return what drafter and target did in a step whose draft had branches."""
    tokens = tokens_of(step)
    kept = [token for token in tokens if token.mark == KEPT]
    drafted = len(kept) + sum(each.mark == DROPPED for each in tokens)
    beside = sum(each.is_branch for each in kept)
    how_many = f"{len(kept)} ({beside} on a branch)" if beside else str(len(kept) or "none")
    own = f" and {'added 1' if kept else 'wrote its own'}" if is_own(step) else ""
    return f"A tree of {drafted} tokens: the target accepted {how_many}{own}."


def sentence(
    steps: Sequence[Chunk], place: int, index: int, width: int, rows: int
) -> Sequence[Content]:
    """Return the lines of the answer around a step, with its tokens tinted.

    The token at an index of the step's own is marked: it is under the cursor.
    """
    room = width * rows
    before = harmless(_text(steps[:place], room, from_end=True))
    after = harmless(_text(steps[place + 1 :], room))
    step, parts = steps[place], list[Content]()
    for number, (text, name) in enumerate(zip(step.texts, step.origins, strict=True)):
        part = Content.styled(harmless(text), f"bold {origin_style(name)}")
        is_marked = number == index
        parts.append(part.stylize("reverse").stylize(HERE) if is_marked else part)
    styled = Content.assemble((before, MUTED), *parts, (after, MUTED))
    width -= len(CUT)
    lines = styled.wrap(width)
    marked = [number for number, line in enumerate(lines) if _is_here(line)]
    here = marked[0] if marked else len(Content(before).wrap(width)) - 1
    first = max(0, min(here - rows // 2, len(lines) - rows))
    shown = lines[first : first + rows]
    is_cut = first > 0 or _has_more(steps[:place], room)
    return [Content.assemble((CUT, MUTED), shown[0]), *shown[1:]] if is_cut and shown else shown


def _text(steps: Sequence[Chunk], room: int, *, from_end: bool = False) -> str:
    """Return the text of steps, at most `room` characters of it."""
    parts, length = list[str](), 0
    for step in reversed(steps) if from_end else steps:
        text = "".join(step.texts)
        parts.append(text)
        length += len(text)
        if length >= room:
            break
    return "".join(reversed(parts))[-room:] if from_end else "".join(parts)[:room]


def _has_more(steps: Sequence[Chunk], room: int) -> bool:
    return sum(len(text) for step in steps for text in step.texts) > room


def _is_here(line: Content) -> bool:
    return any(span.style == HERE for span in line.spans)


def legend(steps: Sequence[Chunk], width: int) -> list[Content]:
    """Return what the colours and marks of an answer's chips mean."""
    names = {name for step in steps for name in step.origins}
    items = [
        _mark(KEPT, f"accepted: {each.label}", origin_style(each.name))
        for each in origins()
        if each.name in names - {TARGET.name, GRAMMAR.name, CHOSEN}
    ]
    if any(step.rejected or not all(each.is_accepted for each in step.tree) for step in steps):
        items.append(_mark(DROPPED, "rejected", REJECTED))
    items.append(_mark(OWN, "the target's own", origin_style(TARGET.name)))
    if GRAMMAR.name in names:
        items.append(_mark(FORCED, "forced by the grammar", origin_style(GRAMMAR.name)))
    if CHOSEN in names:
        items.append(_mark(OWN, origin(CHOSEN).label, origin_style(CHOSEN)))
    return packed(items, width)


def _mark(mark: str, words: str, style: str) -> Content:
    return Content.assemble((f"{mark} ", f"bold {style}"), (words, MUTED))


def alternatives(step: Chunk, index: int, width: int) -> Iterator[Content]:
    """Yield the tokens that could have stood at an index, with the model's own probabilities."""
    found = step.alternatives[index] if index < len(step.alternatives) else ()
    if not found:
        return
    yield Content.styled(
        next((offer for offer in OFFERS if len(offer) <= width), OFFERS[-1]), MUTED
    )
    texts = [visible(text) if text else END for _, text, _ in found]
    room = max(map(cell_len, texts))
    for number, ((token, _, share), shown) in enumerate(zip(found, texts, strict=True)):
        bar = "█" * round(BAR_WIDTH * share)
        note = "  in the answer" if token == step.tokens[index] else ""
        line = Content.assemble(
            (f"{number + 1} ", "bold"), set_cell_size(shown, room + 2),
            (f"{bar:<{BAR_WIDTH}}", MUTED), f" {percent(share):>5}", (note, MUTED),
        )  # fmt: skip
        yield line.stylize(Style.from_meta({ALTERNATIVE: number}))
