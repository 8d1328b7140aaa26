"""The open conversation: its branches, its preset, and storing it; no Textual here."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from specchat.chat.conversation import (
    Attachment,
    ChatSchema,
    Conversation,
    Mark,
    Message,
    Role,
    Tree,
)
from specchat.chat.preset import Preset
from specchat.chat.store import Store
from specchat.chat.stored_steps import StoredSteps
from specchat.errors import StoreBusy
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.controllers.answer_writes import AnswerWrites
from specchat.tui.texts.sampling_text import only_sampling
from specchat.tui.texts.schema_text import told


class Conversations:
    """The conversations of a store, one of which is open and shows one branch."""

    def __init__(self, store: Store, pair: str, system_prompt: str = "") -> None:
        """Start with an empty conversation, which is stored with its first question."""
        self.store = store
        self.writes = AnswerWrites(store)
        self.pair = pair
        self.usual_prompt = system_prompt
        """The system prompt of new conversations."""
        self.system_prompt = system_prompt
        self.preset: Preset | None = None
        self.schema: ChatSchema | None = None
        """What the next answers look like; None for any text."""
        self.conversation: Conversation | None = None
        self.tree = Tree()
        self.leaf: int | None = None

    @property
    def branch(self) -> list[Message]:
        """The messages that are shown."""
        return self.tree.branch(self.leaf)

    @property
    def has_older(self) -> bool:
        """Whether there are messages before the last question and its answer."""
        return len(self.branch) > 2

    @property
    def last(self) -> Message | None:
        """The last message that is shown, None if there is none."""
        return self.tree[self.leaf] if self.leaf is not None else None

    @property
    def title(self) -> str:
        """The title, empty until there is a question."""
        return self.conversation.title if self.conversation else ""

    @property
    def number(self) -> int | None:
        """The number in the store, None until there is a question."""
        return self.conversation.id if self.conversation else None

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling options of the preset."""
        return only_sampling(self.preset.sampling) if self.preset else {}

    def schema_for(self, question: int) -> str:
        """Return the JSON Schema that a new answer to a question follows; empty for any text.

        A summary is text in any case.
        """
        is_summary = self.tree[question].mark == "summary"
        return "" if is_summary or self.schema is None else self.schema.source

    def turns(
        self, leaf: int | None, schema: str = "", question: str | None = None
    ) -> list[ChatMessage]:
        """Return the turns to send for a branch, and a question after it if there is one.

        The answer to the last question follows a JSON Schema unless that is empty. A question says
        so where that is news, and then always: what the model has read stays as it was.
        """
        turns = self.tree.turns(leaf, self.system_prompt)
        if question is not None:
            if turns and turns[-1]["role"] == "user":  # its answer is empty so far
                turns.pop()
            turns.append({"role": "user", "content": question})
        for place, own in self._schema_changes(turns, leaf, schema):
            words = f"{turns[place]['content']}\n\n{told(own)}"
            turns[place] = {**turns[place], "content": words}
        return turns

    def pinned_turns(self, leaf: int | None, schema: str = "") -> list[int]:
        """Return the indices of those turns, of all that `turns` returns, that must be sent.

        They are the pinned ones, and the question that says what the last answer follows.
        """
        pinned = self.tree.pinned_turns(leaf, self.system_prompt)
        if schema:
            turns = self.tree.turns(leaf, self.system_prompt)
            *_, last = [(-1, ""), *self._schema_changes(turns, leaf, schema)]
            pinned += [last[0]] if last[1] == schema else []
        return pinned

    def _schema_changes(
        self, turns: Sequence[ChatMessage], leaf: int | None, schema: str
    ) -> Iterator[tuple[int, str]]:
        """Yield each place where a question's answer follows another JSON Schema than the last."""
        answers = (each for each in self.tree.sent(leaf) if each.role == "assistant")
        before = ""
        for place, turn in enumerate(turns):
            if turn["role"] == "user":
                answer = next(answers, None)
                own = schema if answer is None else answer.schema
                if own != before:
                    yield place, own
                before = own

    def begin(self) -> None:
        """Start a new conversation."""
        self.conversation, self.tree, self.leaf = None, Tree(), None
        self.system_prompt, self.preset, self.schema = self.usual_prompt, None, None

    def open(self, number: int, message: int | None = None) -> None:
        """Open a conversation; with `message`, switch it to the branch of that message."""
        self.writes.settle()
        conversation, tree = self.store.conversation(number), self.store.tree(number)
        for answer in self.writes.waiting:  # the store has less of it
            if answer.id in tree:
                tree.put(answer)
        self.conversation, self.tree = conversation, tree
        self.system_prompt, self.schema = conversation.system_prompt, conversation.schema
        presets = {preset.name: preset for preset in self.store.presets()}
        self.preset = presets.get(conversation.preset)
        self.leaf = conversation.leaf if conversation.leaf in tree else tree.newest_leaf(None)
        if message in tree and all(each.id != message for each in self.branch):
            with suppress(StoreBusy):  # the branch is shown even if the switch is not stored
                self.set_leaf(tree.newest_leaf(message))

    def ask(
        self,
        text: str,
        files: Sequence[Attachment] = (),
        *,
        images: Sequence[Image] = (),
        instead_of: Message | None = None,
        mark: Mark = "",
    ) -> Message:
        """Add a question at the end, or as another version of an earlier one."""
        parent = instead_of.parent if instead_of else self.leaf
        return self._add("user", text, parent, files, images=images, mark=mark)

    def answer(self, question: int, schema: str = "") -> Message:
        """Add an empty answer to a question, which follows a JSON Schema unless that is empty."""
        return self._add("assistant", "", question, schema=schema)

    def finish(
        self,
        message: Message,
        parts: AnswerParts,
        finish: str,
        figures: dict[str, Any],
        steps: StoredSteps | None = None,
    ) -> None:
        """Store a finished answer, of any conversation; without `steps`, those stored stay."""
        state = replace(
            self.tree.get(message.id, message),
            text=parts.text,
            reasoning=parts.reasoning,
            tool_calls=tuple(parts.tool_calls),
            pieces=tuple(parts.pieces),
            finish=finish,
            statistics=figures,
        )
        if message.id in self.tree:
            self.tree.put(state)
        self.writes.finish(state, steps)

    def keep_figures(self, answer: int, measured: Mapping[str, Any]) -> dict[str, Any]:
        """Replace estimates in an answer's statistics by measurements; return the statistics."""
        state = self.tree[answer]
        figures = {**state.statistics, **measured}
        self.finish(state, AnswerParts.of(state), state.finish or "", figures)
        return figures

    def withdraw(self, message: int, leaf: int | None) -> None:
        """Remove a message and what follows it, and switch to the branch of another leaf.

        Nothing changes here on StoreFailed.
        """
        self.store.change(self.stored_number(), leaf=leaf)
        self.store.delete_messages(self.tree.below(message))
        self.tree.remove(message)
        self.leaf = leaf

    def turn_to(self, message: int, step: int) -> int | None:
        """Switch to another version of a message and return it; None if there is none."""
        versions = self.tree.siblings(message)
        place = versions.index(message) + step
        if not 0 <= place < len(versions):
            return None
        self.set_leaf(self.tree.newest_leaf(versions[place]))
        return versions[place]

    def rename(self, number: int, title: str, titled_by: str = "user") -> None:
        """Give a conversation a title."""
        self.store.rename(number, title, titled_by)
        if number == self.number:
            self.conversation = self.store.conversation(number)

    def set_system_prompt(self, text: str) -> None:
        """Use another system prompt from the next answer on."""
        if self.conversation is not None:
            self.store.change(self.conversation.id, system_prompt=text.strip())
        self.system_prompt = text.strip()

    def set_schema(self, schema: ChatSchema | None) -> None:
        """Have answers follow a schema from the next one on; None for any text."""
        if self.conversation is not None:
            self.store.set_schema(self.conversation.id, schema)
        self.schema = schema

    def use_default_prompt(self, text: str) -> None:
        """Use another system prompt for new conversations, and for this one while it is empty."""
        self.usual_prompt = text
        if self.conversation is None:
            self.system_prompt = text

    def use_preset(self, preset: Preset, schema: ChatSchema | None) -> None:
        """Use a preset, whose schema has been read, from the next answer on."""
        self.set_system_prompt(preset.system_prompt)
        self.set_schema(schema)
        if self.conversation is not None:
            self.store.change(self.conversation.id, preset=preset.name)
        self.preset = preset

    def stored_number(self) -> int:
        """Return the conversation's number, storing it first if it is new."""
        if self.conversation is None:
            preset = self.preset.name if self.preset else ""
            self.conversation = self.store.begin(self.system_prompt, self.pair, preset, self.schema)
        return self.conversation.id

    def set_leaf(self, leaf: int | None) -> None:
        """Show the branch that ends with a message."""
        self.leaf = leaf
        if self.conversation is not None:
            self.store.change(self.conversation.id, leaf=leaf)

    def _add(
        self,
        role: Role,
        text: str,
        parent: int | None,
        attachments: Sequence[Attachment] = (),
        *,
        images: Sequence[Image] = (),
        mark: Mark = "",
        schema: str = "",
    ) -> Message:
        number = self.stored_number()
        message = self.store.add(
            number, role, text, parent, attachments, images=images, mark=mark, schema=schema
        )
        self.tree.put(message)
        self.leaf = message.id
        if self.conversation is not None and not self.conversation.title:
            self.conversation = self.store.conversation(self.conversation.id)
        return message
