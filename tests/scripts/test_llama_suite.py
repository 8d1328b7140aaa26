"""Reasons why tests of llama.cpp's own server do not pass: each names tests of a file."""

from __future__ import annotations

from scripts.support.llama_suite import Reason, load_reasons
from tables import table


@table(
    ("pattern", "test", "is_covered"),
    [
        ("router", "test_router.py::test_router_props", True),
        ("router", "test_router_more.py::test_props", False),
        ("basic:no_ui", "test_basic.py::test_no_ui", True),
        ("basic:no_ui", "test_basic.py::test_no_ui[1-two]", True),
        ("basic:no_ui", "test_basic.py::test_no_ui_at_all", False),
        ("basic:no_ui", "test_other.py::test_no_ui", False),
        ("basic:cors_*", "test_basic.py::test_cors_options[a]", True),
        ("basic:bad[[]case7]", "test_basic.py::test_bad[case7]", True),
        ("basic:bad[[]case7]", "test_basic.py::test_bad[case8]", False),
    ],
)
def test_a_reason_names_tests(pattern: str, test: str, *, is_covered: bool) -> None:
    """By their file, their name, or one case of it."""
    assert Reason("absent", "why", (pattern,)).covers(test) is is_covered


def test_each_test_has_one_reason() -> None:
    """Of a known kind."""
    reasons = load_reasons()
    named = [pattern for each in reasons for pattern in each.tests]
    assert len(named) == len(set(named))
    assert {each.kind for each in reasons} == {"by design", "absent", "the model's text"}
    assert not any(each.covers("test_basic.py::test_server_start_simple") for each in reasons)
