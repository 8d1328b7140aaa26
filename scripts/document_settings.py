"""Write the list of settings in specchat/docs/settings.md from the declared options.

.venv/bin/python scripts/document_settings.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from specchat.options import Option  # noqa: E402
from specchat.settings import SETTINGS  # noqa: E402
from specchat.settings.toml_file import as_toml  # noqa: E402

__all__ = ["PAGE", "documented"]

PAGE = ROOT / "specchat" / "docs" / "settings.md"
START, END = "<!-- generated: settings -->\n", "<!-- end -->\n"
WIDTH = 120


def documented(page: str) -> str:
    """Return the page with the list of settings as they are declared."""
    before, _, rest = page.partition(START)
    after = rest.partition(END)[2]
    list_of_settings = "\n".join(_lines())
    return f"{before}{START}\n{list_of_settings}\n\n{END}{after}"


def _lines() -> Iterator[str]:
    table = ""
    for option in SETTINGS:
        if option.table != table:
            yield from ["", f"`[{option.table}]`", ""] if table else [f"`[{option.table}]`", ""]
            table = option.table
        yield textwrap.fill(
            f"- {_item(option)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )


def _item(option: Option) -> str:
    """Return a setting with its default, its help, and its rule unless it is a switch."""
    default = option.write(option.default)
    name = option.key if default is None else f"{option.key} = {as_toml(default)}"
    rule = f"{option.description[0].upper()}{option.description[1:]}"
    return f"`{name}`: {option.help}" + ("" if option.main_type is bool else f" *{rule}.*")


if __name__ == "__main__":
    PAGE.write_text(documented(PAGE.read_text("utf-8")), "utf-8")
