"""Text is whole: no broken character, no part of a stop string."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specchat.decoding.text_assembler import TextAssembler
from tables import table


def assembler(*stops: str) -> TextAssembler:
    """Return an assembler whose tokens are single bytes."""
    return TextAssembler(lambda token: bytes([token]), stops)


@given(st.text())
def test_characters_come_out_whole(text: str) -> None:
    """Byte by byte, no replacement character appears, and nothing is lost."""
    whole = assembler()
    pieces = [whole.push(byte) for byte in text.encode("utf-8", "replace")]
    pieces.append(whole.finish())

    assert "".join(pieces) == text.encode("utf-8", "replace").decode()
    assert ("\ufffd" in "".join(pieces)) == ("\ufffd" in text)


def test_invalid_bytes_are_shown_as_such() -> None:
    """Bytes that no other can complete become one replacement character."""
    whole = assembler()

    assert whole.push(0xE2) == ""
    assert whole.push(0x82) == ""
    assert whole.push(ord("a")) == "\ufffda"


def test_a_character_that_the_end_cuts_is_left_out() -> None:
    """A continued answer can then complete it; a replacement character would stay."""
    cut = assembler()

    assert "".join(map(cut.push, "a😀".encode()[:-1])) == "a"
    assert cut.finish() == ""


def test_a_stop_string_never_shows_in_part() -> None:
    """What may begin a stop string is held back until it is decided."""
    whole = assembler("END")

    shown = [whole.push(byte) for byte in b"an ENd EN"]

    assert "".join(shown) == "an ENd "
    assert whole.push(ord("D")) == ""
    assert whole.is_stopped
    assert whole.finish() == ""


def test_what_was_held_back_comes_out_at_the_end() -> None:
    """Half a stop string at the end of an answer is text."""
    whole = assembler("END")
    for byte in b"EN":
        assert whole.push(byte) == ""

    assert whole.finish() == "EN"


def test_the_earliest_stop_string_counts() -> None:
    """Of several stop strings in one token the first in the text ends it."""
    whole = TextAssembler(lambda _: b"one three two", ["two", "three"])

    assert whole.push(0) == "one "
    assert whole.is_stopped
    assert whole.stop_string == "three"


@given(st.text(alphabet="ab", max_size=30), st.text(alphabet="ab", min_size=1, max_size=4))
def test_text_ends_before_the_first_stop_string(text: str, stop: str) -> None:
    """For any text, exactly the part before the stop string is returned."""
    whole = assembler(stop)
    shown = ""
    for byte in text.encode():
        shown += whole.push(byte)
        assert stop not in shown
        if whole.is_stopped:
            break
    shown += whole.finish()

    assert shown == text.split(stop, maxsplit=1)[0] if stop in text else shown == text


@table("stop", ["é", "日本", "🙂"])
def test_stop_strings_may_be_any_text(stop: str) -> None:
    """A stop string of several bytes a character is found across tokens."""
    whole = assembler(stop)

    shown = "".join(whole.push(byte) for byte in f"ab{stop}".encode())

    assert shown == "ab"
    assert whole.is_stopped


def test_an_end_token_ends_the_text_after_what_was_held_back() -> None:
    """The end token has no text, and text held back as a possible stop string is returned."""
    whole = TextAssembler(lambda token: bytes([token]), ["abc"], end_tokens=[0])

    assert [whole.push(ord("a")), whole.push(ord("b")), whole.push(0)] == ["", "", "ab"]
    assert whole.is_stopped
    assert whole.finish() == ""
