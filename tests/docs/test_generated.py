"""The parts of the documentation that come from the code are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents import PAGES, name_of
from update_docs import updated


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    """If this fails, run python scripts/update_docs.py."""
    text = page.read_text("utf-8")
    assert updated(text) == text


def test_there_are_generated_parts() -> None:
    """The list of settings comes from the options that specchat declares."""
    page = "<!-- generated: settings -->\n<!-- end -->\n"
    assert "`top_k = 40`: " in updated(page)
