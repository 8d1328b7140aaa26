"""`specchat history`: list, search, show, export and delete conversations."""

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from specchat.chat.answer_statistics import HEADINGS, add_up, measured_answers, table_of
from specchat.chat.conversation import Conversation, Message, with_attachments
from specchat.chat.draft import forget_drafts
from specchat.chat.export import EXPORTS, as_json, date_text, image_line, write_export
from specchat.chat.message_search import search_messages
from specchat.chat.store import UNDO_SECONDS, Store, default_path
from specchat.cli.terminal import (
    confirm,
    has_colours,
    print_exactly,
    print_result,
    say,
    table_lines,
)
from specchat.errors import InvalidOption
from specchat.safe_text import harmless
from specchat.wording import positions_text

NAMES = {"user": "You", "assistant": "Answer"}
FAINT, PLAIN = "\x1b[2m", "\x1b[0m"
MAX_SHOWN = 10
"""The most conversations to list in a request for confirmation."""


def run(arguments: argparse.Namespace) -> None:
    """Run the action named on the command line."""
    store = Store(_store_path())
    try:
        if store.notice:
            say(store.notice)
            store.notice = ""
        ACTIONS[arguments.action](store, arguments)
    finally:
        store.close()
        if store.notice:  # an image could not be read
            say(store.notice)


def _store_path() -> Path | None:
    """Return the store's file; None if it does not exist yet but could be created."""
    path = default_path()
    try:
        path.stat()
    except FileNotFoundError:
        above = next((parent for parent in path.parents if os.path.lexists(parent)), path)
        return None if above.is_dir() else path
    except OSError:  # opening the store will report what is wrong
        return path
    return path


def _list(store: Store, arguments: argparse.Namespace) -> None:
    if arguments.limit < 1:
        raise InvalidOption(f"--limit must be 1 or more, not {arguments.limit}")
    conversations = store.conversations(arguments.limit)
    record = {"conversations": [asdict(conversation) for conversation in conversations]}
    nothing = "no conversations yet; `specchat` opens the chat"
    print_result(arguments, record, _conversation_lines(conversations), nothing)


def _conversation_lines(conversations: list[Conversation]) -> list[str]:
    rows = (
        (str(conversation.id), date_text(conversation.changed), conversation.title)
        for conversation in conversations
    )
    return table_lines(rows, left=(1, 2))


def _search(store: Store, arguments: argparse.Namespace) -> None:
    hits = search_messages(store, " ".join(arguments.words))
    lines = [
        f"{hit.conversation:>6}  {hit.title}\n        {'reasoning: ' * hit.in_reasoning}"
        f"{hit.snippet}"
        for hit in hits
    ]
    record = {"found": [asdict(hit) for hit in hits]}
    print_result(arguments, record, lines, "no messages found")


def _show(store: Store, arguments: argparse.Namespace) -> None:
    conversation = store.conversation(arguments.id)
    tree = store.tree(conversation.id)
    branch = tree.branch(conversation.leaf)
    if arguments.stats:
        _show_statistics(measured_answers(branch), arguments)
    elif arguments.json:
        print(as_json(conversation, tree))
    else:
        print(harmless(conversation.title))
        for message in branch:
            print("\n".join(_message_lines(message, with_reasoning=arguments.reasoning)))


def _message_lines(message: Message, *, with_reasoning: bool) -> list[str]:
    """Return the lines to print for a message; reasoning only if requested."""
    lines = [""]
    if message.reasoning and with_reasoning:
        heading = f"{FAINT}Reasoning:{PLAIN}" if has_colours() else "Reasoning:"
        lines += [heading, harmless(message.reasoning), ""]
    lines.append(f"{NAMES[message.role]}:")
    lines += [harmless(image_line(image)) for image in message.images]
    if text := with_attachments(message.text, message.attachments):
        lines.append(harmless(text))
    lines += [
        f"Call: {harmless(call.name)}({harmless(call.arguments)})" for call in message.tool_calls
    ]
    if message.reasoning and not (with_reasoning or text or message.tool_calls):
        lines.append("(stopped while reasoning; --reasoning shows it)")
    return lines


def _show_statistics(answers: list[Message], arguments: argparse.Namespace) -> None:
    """Print a row for each answer, the totals, and the acceptance by draft position."""
    totals = add_up(answer.statistics for answer in answers)
    records = [{"message": answer.id, **answer.statistics} for answer in answers]
    lines = table_lines([HEADINGS, *table_of(answers, totals)], left=(len(HEADINGS) - 1,))
    if accepted := totals.accepted_by_position:
        lines.append(f"acceptance by draft position: {positions_text(accepted)}")
    record = {"answers": records, "totals": asdict(totals)}
    nothing = "no statistics in this conversation"
    print_result(arguments, record, lines if answers else [], nothing)


def _export(store: Store, arguments: argparse.Namespace) -> None:
    conversation = store.conversation(arguments.id)
    text = EXPORTS[arguments.format](conversation, store.tree(conversation.id))
    if arguments.output is None:
        print_exactly(text, end="")
        return
    if arguments.output.exists() and not arguments.force:
        raise InvalidOption(f"{arguments.output} exists: --force overwrites it")
    path = write_export(arguments.output, text, overwrite=arguments.force)
    say(f"exported to {path}")


def _delete(store: Store, arguments: argparse.Namespace) -> None:
    if bool(arguments.ids) == arguments.all:
        raise InvalidOption("give the numbers of conversations, or --all")
    chosen = (
        store.conversations() if arguments.all else list(map(store.conversation, arguments.ids))
    )
    number = f"{len(chosen)} conversation{'' if len(chosen) == 1 else 's'}"
    if not arguments.yes:
        if sys.stdin and sys.stdin.isatty():
            print("\n".join(_conversation_lines(chosen[:MAX_SHOWN])), file=sys.stderr)
        if not confirm(f"delete {number} permanently?", otherwise="--yes deletes without asking"):
            say("nothing deleted")
            return
    for conversation in chosen:
        store.delete(conversation.id, permanently=True)
    store.purge(0.0 if arguments.all else UNDO_SECONDS)
    if arguments.all:
        forget_drafts(default_path())
    say(f"{number} deleted")


ACTIONS = {"list": _list, "search": _search, "show": _show, "export": _export, "delete": _delete}
