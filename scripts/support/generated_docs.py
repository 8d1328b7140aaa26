"""The tables in specchat/docs that come from the code: keys, slash commands, settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from textwrap import fill

from scripts.support.llama_suite import load_reasons
from scripts.support.plan_table import plan_table
from specchat.catalogue.entry import HEAD_KINDS
from specchat.catalogue.known_heads import all_known_heads
from specchat.gguf.draft_kinds import KINDS
from specchat.gguf.layer_inputs import TOO_WIDE
from specchat.gguf.prediction_head import NO_GRAPH
from specchat.options.option import Option
from specchat.settings.schema import SETTINGS
from specchat.settings.toml_file import as_toml
from specchat.tui.commands import COMMANDS, COMPOSER_COMMANDS, Command, key_of, key_rows
from specchat.wording import size_text

WIDTH = 120
GENERATED = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w ]+) -->\n).*?(?P<end>^<!-- end -->$)",
    re.MULTILINE | re.DOTALL,
)


def settings_list() -> str:
    """Return every setting with its default, its meaning and its values, by table."""
    parts = []
    for table in dict.fromkeys(each.table for each in SETTINGS):
        items = [_item(each) for each in SETTINGS if each.table == table]
        parts.append("\n".join([f"`[{table}]`", "", *items, "\n"]))
    return "\n" + "".join(parts)


def _item(option: Option) -> str:
    """Return a list item about an option."""
    default = option.write(option.default)
    value = "" if default is None else f" = {as_toml(default)}"
    text = f"- `{option.key}{value}`: {option.help} *{_sentence(option.description)}*"
    return _filled(text)


def _filled(item: str) -> str:
    """Return an item of a list in lines of the usual width."""
    return fill(item, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def keys_table() -> str:
    """Return the keys of the chat's commands; Ctrl+P is Textual's own."""
    keyed = [each for each in COMMANDS if each.key]
    rows = [(f"<!-- key: {each.id} -->{key_of(each.id)}", each.help) for each in keyed]
    palette = ("Ctrl+P", "Find any command, theme or preset by name")
    return _table(("key", "what it does"), [*rows, palette])


def composer_keys_table() -> str:
    """Return the keys of the composer; those that move in its text are Textual's own."""
    fixed = [
        ("Up, Down", "Recall earlier questions"),
        ("End", "Go to the newest message, from an empty composer"),
    ]
    return _table(("key", "what it does"), [*key_rows(COMPOSER_COMMANDS), *fixed])


def slash_table() -> str:
    """Return the slash commands."""
    rows = [(_slash_words(each), each.slash_help) for each in COMMANDS if each.slash]
    return _table(("command", "what it does"), rows)


def actions_list() -> str:
    """Return the commands whose key can be changed, with their default keys as in settings."""
    return "\n" + "".join(f'- `{each.id} = "{each.key}"`\n' for each in COMMANDS if each.key) + "\n"


def heads_table() -> str:
    """Return which kinds of heads run for targets of which architectures."""
    kinds = [kind for kind in KINDS.values() if kind.targets]
    targets = sorted({target for kind in kinds for target in kind.targets})
    headings = ("architecture", *(kind.name for kind in kinds))
    rows = [
        (f"`{target}`", *(_cell(kind.targets.get(target)) for kind in kinds)) for target in targets
    ]
    reasons = {reason for kind in kinds for reason in kind.targets.values() if reason}
    notes = "".join(f"- **{_SHORT[reason]}**: {reason}.\n" for reason in sorted(reasons))
    cells = [reason for kind in kinds for reason in kind.targets.values()]
    num_running = cells.count("")
    counts = (
        f"Of these {len(cells)} pairs of a kind and an architecture, {num_running} run, each tried"
        f" on such models;\n{len(cells) - num_running} are refused for the reasons below."
    )
    return f"\n{_table(headings, rows)}\n{counts}\n\n{notes}\n"


_SHORT = {NO_GRAPH: "no graph", TOO_WIDE: "too wide"}


def _cell(reason: str | None) -> str:
    """Return a cell: no head of this kind is known, one runs, or it is refused."""
    if reason is None:
        return ""
    return _SHORT[reason] if reason else "runs"


def published_heads_table() -> str:
    """Return the prediction heads that the catalogue knows, by the names of their models."""
    rows = [
        (
            head.model,
            HEAD_KINDS[head.kind].partition(" ")[2],
            size_text(head.num_bytes) if head.num_bytes else "",
            f"`{head.reference.repository}`",
            head.licence,
        )
        for head in sorted(all_known_heads(), key=lambda head: head.model.lower())
    ]
    return f"\n{_table(('model', 'head', 'size', 'repository', 'licence'), rows)}\n"


def llama_suite_list() -> str:
    """Return why tests of llama.cpp's own server do not pass, by the kind of the reason."""
    reasons, items = load_reasons(), list[str]()
    for kind in dict.fromkeys(each.kind for each in reasons):
        items.append(f"{_sentence(kind)[:-1]}:\n")
        for each in reasons:
            if each.kind == kind:
                names = ", ".join(f"`{name}`" for name in each.tests)
                items.append(_filled(f"- {_sentence(each.why)} ({names})"))
        items.append("")
    return "\n" + "\n".join(items) + "\n"


def _slash_words(command: Command) -> str:
    words = ", ".join(f"`/{word}`" for word in command.slash)
    return f"{words} {' or '.join(command.takes)}".rstrip()


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


GENERATED_PARTS: dict[str, Callable[[], str]] = {
    "keys": keys_table,
    "composer keys": composer_keys_table,
    "slash commands": slash_table,
    "settings": settings_list,
    "actions": actions_list,
    "heads": heads_table,
    "published heads": published_heads_table,
    "llama tests": llama_suite_list,
    "plans": plan_table,
}


def updated(page: str) -> str:
    """Return a page with its generated parts up to date."""
    return GENERATED.sub(
        lambda found: f"{found['start']}{GENERATED_PARTS[found['name']]()}{found['end']}", page
    )
