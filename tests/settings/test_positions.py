"""The lines of values, found with tomllib statement by statement."""

from __future__ import annotations

import sys
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from specchat.settings.positions import find_lines, statements, unfinished_line

FILE = '''\
# temperature = 9
top = 1

[sampling]  # [screen]
temperature = 0.5  # seed = 3
text = """
[chat]
seed = 4
"""
seed = 5
list = [
  1,  # ]
  "]",
]
'quoted name' = """one line"""
[chat]
inline = { deep = { deeper = 1 }, other = 2 }
dotted . name.here = 3
[[many]]
x = 1
[[many]]
x = 2
[a."b.c"]
d = \'\'\'
"""
\'\'\'
e = 1
'''


def test_every_value_has_the_line_it_begins_on() -> None:
    """Comments, strings and lists of several lines, inline tables, dotted names."""
    lines = find_lines(FILE)

    assert lines["top",] == 2
    assert lines["sampling",] == 4
    assert lines["sampling", "temperature"] == 5
    assert lines["sampling", "text"] == 6
    assert lines["sampling", "seed"] == 10
    assert lines["sampling", "list"] == 11
    assert lines["sampling", "quoted name"] == 15
    assert lines["chat", "inline", "deep", "deeper"] == 17
    assert lines["chat", "dotted", "name", "here"] == 18
    assert lines["many",] == 19
    assert lines["a",] == lines["a", "b.c"] == 23
    assert lines["a", "b.c", "e"] == 27
    assert ("chat", "seed") not in lines


def test_windows_line_ends_change_nothing() -> None:
    """The same file with carriage returns has the same lines."""
    assert find_lines(FILE.replace("\n", "\r\n")) == find_lines(FILE)


def test_what_never_ends_begins_where_it_was_opened() -> None:
    """For these, tomllib itself reports the end of the file."""
    assert unfinished_line('[chat]\nsystem_prompt = """\na\nb\nc') == 2
    assert unfinished_line("a = 1\nb = [1,\n\n") == 2
    assert unfinished_line("a = ") == 1


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", min_codepoint=32))
VALUES = st.one_of(
    st.integers(-9, 9).map(str),
    TEXTS.filter(lambda text: "'" not in text).map(lambda text: f"'''\n{text}\n]\n'''"),
    st.lists(st.sampled_from(["1", "'}'", '"""\n]\n"""'])).map(
        lambda items: "[ # ]\n" + "".join(f"{item},\n" for item in items) + "]"
    ),
)


@given(st.lists(VALUES, max_size=6))
def test_statements_are_the_whole_file(values: list[str]) -> None:
    """However values are written, each is one statement that tomllib reads as in the whole."""
    text = "".join(f"k{place} = {value}\n# }}\n" for place, value in enumerate(values))
    found = [statement for statement in statements(text) if statement.content]

    assert {name: value for one in found for name, value in (one.content or {}).items()} == (
        tomllib.loads(text)
    )
    for place, statement in enumerate(found):
        assert text.split("\n")[statement.line - 1].startswith(f"k{place} = ")


def test_a_name_of_thousands_of_parts_is_found() -> None:
    """A hostile file is a mistake on a line, not the end of the program.

    From Python 3.14 on, tomllib reads at most as many parts as functions may be nested.
    """
    for number in (900, 3000):
        deep = "a." * number + "a"
        is_read = number < 1000 or sys.version_info < (3, 14)
        assert find_lines(f"x = 1\n{deep} = 1\n").get(("a",)) == (2 if is_read else None)
        found = find_lines(f"x = 1\n[{deep}]\nb = 1\n")
        assert found.get((*["a"] * (number + 1), "b")) == (3 if is_read else None)
