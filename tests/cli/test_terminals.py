"""The chat starts only where it can draw a screen."""

import pytest

from pseudo_terminal import on_terminal
from specchat.cli import main
from tables import table


@pytest.mark.slow
@table("kind", ["dumb", "unknown", ""])
def test_a_terminal_that_draws_no_screen_is_refused(kind: str) -> None:
    """In one line, which names what is wrong and what to do; no escape sequence is sent."""
    shown = on_terminal([], TERM=kind)

    assert shown.splitlines() == [
        (
            "specchat: the chat needs a terminal that draws a screen"
            f" ({f'TERM={kind}' if kind else 'TERM is not set'}): set TERM, such as xterm-256color,"
            " or use `specchat ask`"
        )
    ]


def test_without_a_terminal_ask_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """As in a pipe."""
    assert main([]) == 2
    assert "use `specchat ask` without one" in capfd.readouterr().err
