"""Which messages are left out when the context is full; harmless text."""

from __future__ import annotations

from collections.abc import Sequence

from specchat.chat.newest_turns import TURNS_AT_ONCE, newest_turns
from specchat.formats.chat_message import ChatMessage
from specchat.safe_text import harmless
from tables import table


def conversation(num_turns: int) -> list[ChatMessage]:
    """Return a system prompt and this many turns, the last of them a question."""
    turns: list[ChatMessage] = [{"role": "system", "content": "S"}]
    for number in range(num_turns):
        turns.append({"role": "user", "content": f"q{number}"})
        turns.append({"role": "assistant", "content": f"a{number}"})
    return turns[:-1]


def count(turns: Sequence[ChatMessage]) -> int:
    """Every message is ten tokens."""
    return 10 * len(turns)


def test_nothing_is_left_out_while_there_is_room() -> None:
    """Up to the very last token."""
    assert newest_turns(conversation(3), count, 60) == conversation(3)


@table("num_turns", [6, 20, 101])
@table("limit", [50, 120, 400])
def test_the_system_prompt_and_the_newest_stay(num_turns: int, limit: int) -> None:
    """Whole turns are left out, several at once, and the rest fits."""
    turns = conversation(num_turns)
    kept = newest_turns(turns, count, limit)

    assert count(kept) <= max(limit, 20)
    assert kept[0]["role"] == "system"
    assert kept[1]["role"] == "user"
    assert kept[-1] == turns[-1]
    assert (len(turns) - len(kept)) % 2 == 0


def test_a_developer_prompt_stays_as_a_system_prompt_does() -> None:
    """Some clients use that role for it."""
    prompt: ChatMessage = {"role": "developer", "content": "S"}
    kept = newest_turns([prompt, *conversation(20)[1:]], count, 120)

    assert kept[0] == prompt
    assert [each["role"] for each in kept].count("developer") == 1


def test_several_turns_are_left_out_together() -> None:
    """Otherwise every question would evaluate the whole conversation again."""
    conversations = [conversation(turns) for turns in range(20, 60)]
    changes = {len(turns) - len(newest_turns(turns, count, 400)) for turns in conversations}

    assert len(changes) <= 40 // TURNS_AT_ONCE + 2


def test_long_conversations_are_counted_a_few_times_only() -> None:
    """Counting renders the whole template."""
    counted: list[int] = []

    def noted(turns: Sequence[ChatMessage]) -> int:
        counted.append(len(turns))
        return count(turns)

    turns = conversation(400)
    kept = newest_turns(turns, noted, count(turns) // 7)
    longer = [turns[0], *turns[1 - len(kept) - 8 :]]

    assert len(counted) <= 9
    assert count(kept) <= count(turns) // 7
    assert count(longer) > count(turns) // 7


def test_a_question_that_does_not_fit_stays_alone() -> None:
    """The engine then reports that it is too long."""
    turns = conversation(5)

    assert len(newest_turns(turns, count, 5)) == 2


@table("limit", [50, 120, 400])
@table("place", [1, 2, 7, 20])
def test_pinned_turns_stay_with_their_answers(limit: int, place: int) -> None:
    """In their order, before the newest turns; the others drop out as without them."""
    turns = conversation(40)
    begin = place - 1 + place % 2
    kept = newest_turns(turns, count, limit, {place, len(turns) - 1})

    assert kept[:3] == [turns[0], *turns[begin : begin + 2]]
    assert kept[-1] == turns[-1]
    assert count(kept) <= max(limit, 40)
    rest = kept[3:]
    assert rest == turns[len(turns) - len(rest) :]


def test_what_could_command_a_terminal_is_replaced() -> None:
    """Control characters, reordering and halves of characters; nothing else."""
    assert harmless("\x1b[31m\x07\u202e\ud800") == "\ufffd[31m\ufffd\ufffd\ufffd"
    assert harmless("שלום\tok\n日本 🙂") == "שלום\tok\n日本 🙂"
