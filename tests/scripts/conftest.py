"""The engines of other tests in this process, such as those of the server, do not count here."""

from __future__ import annotations

import psutil
import pytest

from scripts.support import chat_terminal


@pytest.fixture(autouse=True)
def _other_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    here = psutil.Process().children(recursive=True)
    others = {each.pid for each in filter(chat_terminal.is_engine, here)}
    monkeypatch.setattr(chat_terminal, "OTHER_ENGINES", others)
