"""`specchat history`: list, search, show, export and delete conversations."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import localtime, strftime

from specchat.chat.answer_statistics import HEADINGS, add_up, answer_rows, cells, total_cells
from specchat.chat.attachments import with_attachments
from specchat.chat.conversation import Conversation, Message
from specchat.chat.export import EXPORTS, as_json
from specchat.chat.safe_text import harmless
from specchat.chat.store import Store, default_path
from specchat.cli.terminal import say
from specchat.errors import InvalidOption, StoreFailed

__all__ = ["run"]

NAMES = {"user": "You", "assistant": "Answer"}


def run(arguments: argparse.Namespace) -> int:
    """Do what the second word says."""
    actions: dict[str, Callable[[Store, argparse.Namespace], None]] = {
        "list": _list,
        "search": _search,
        "show": _show,
        "export": _export,
        "delete": _delete,
    }
    with Store(_kept()) as store:
        if store.notice:
            say(store.notice)
        actions[arguments.action](store, arguments)
    return 0


def _kept() -> Path | None:
    """Return the file of the conversations; None where there is none yet, but can be."""
    path = default_path()
    try:
        path.stat()
    except FileNotFoundError:
        above = next((each for each in path.parents if os.path.lexists(each)), path)
        return None if above.is_dir() else path
    except OSError:  # the store will say what is wrong
        return path
    return path


def _list(store: Store, arguments: argparse.Namespace) -> None:
    if arguments.limit < 1:
        raise InvalidOption(f"--limit must be 1 or more, not {arguments.limit}")
    found = store.conversations(arguments.limit)
    if arguments.json:
        _print_json({"conversations": [asdict(each) for each in found]})
        return
    for each in found:
        print(f"{each.id:>6}  {_when(each)}  {harmless(each.title)}")
    if not found:
        say("there are no conversations yet: specchat opens the chat")


def _search(store: Store, arguments: argparse.Namespace) -> None:
    found = store.search(" ".join(arguments.words))
    if arguments.json:
        _print_json({"found": [asdict(each) for each in found]})
        return
    for each in found:
        words = " ".join(harmless(each.snippet).split())
        print(f"{each.conversation:>6}  {harmless(each.title)}\n        {words}")
    if not found:
        say("nothing was found")


def _show(store: Store, arguments: argparse.Namespace) -> None:
    conversation = store.conversation(arguments.id)
    tree = store.tree(conversation.id)
    if arguments.stats:
        _show_statistics(tree.branch(conversation.leaf), as_record=arguments.json)
        return
    if arguments.json:
        print(as_json(conversation, tree))
        return
    print(harmless(conversation.title))
    for message in tree.branch(conversation.leaf):
        told = with_attachments(message.text, message.attachments)
        print(f"\n{NAMES[message.role]}:\n{harmless(told)}")


def _show_statistics(branch: list[Message], *, as_record: bool) -> None:
    """Print a row for each answer and one for all, then the shares kept by position."""
    rows = answer_rows(branch)
    totals = add_up(rows)
    if as_record:
        answers = [{"message": row.message, **row.statistics} for row in rows]
        _print_json({"answers": answers, "totals": asdict(totals)})
        return
    if not rows:
        say("there are no statistics in it")
        return
    table = [HEADINGS, *map(cells, rows), total_cells(totals)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for *figures, drafter in table:
        aligned = "  ".join(f"{text:>{w}}" for text, w in zip(figures, widths, strict=False))
        print(f"{aligned}  {harmless(drafter)}".rstrip())
    if totals.kept_by_position:
        shares = enumerate(totals.kept_by_position, 1)
        print(f"kept by position: {', '.join(f'{n} {share:.0%}' for n, share in shares)}")


def _export(store: Store, arguments: argparse.Namespace) -> None:
    conversation = store.conversation(arguments.id)
    text = EXPORTS[arguments.format](conversation, store.tree(conversation.id))
    if arguments.output is None:
        print(harmless(text) if sys.stdout.isatty() else text, end="")
        return
    try:
        with arguments.output.open("w" if arguments.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidOption(
            f"{arguments.output} is there already: --force writes over it"
        ) from None
    except OSError as error:
        raise StoreFailed(f"{arguments.output} cannot be written: {error.strerror}") from None
    say(f"written to {arguments.output}")


def _delete(store: Store, arguments: argparse.Namespace) -> None:
    if bool(arguments.ids) == arguments.all:
        raise InvalidOption("name conversations by their numbers, or --all")
    chosen = (
        store.conversations() if arguments.all else list(map(store.conversation, arguments.ids))
    )
    if not arguments.yes and not _agrees(chosen):
        say("nothing was deleted")
        return
    for each in chosen:
        store.delete(each.id)
    store.purge(0.0)
    say(f"{len(chosen)} deleted")


def _agrees(chosen: list[Conversation]) -> bool:
    """Ask whether these may go."""
    if not sys.stdin.isatty():
        raise InvalidOption("nobody can be asked here: --yes deletes without asking")
    for each in chosen[:10]:
        say(f"  {each.id}  {each.title}")
    print(f"delete {len(chosen)} for good? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _print_json(record: object) -> None:
    print(json.dumps(record, ensure_ascii=False))


def _when(conversation: Conversation) -> str:
    return strftime("%Y-%m-%d %H:%M", localtime(conversation.changed))
