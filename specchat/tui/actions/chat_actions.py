"""What each command and key of the chat does: the groups of actions, and a table of methods."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from specchat.tui.actions.attaching import Attaching
from specchat.tui.actions.code_saver import CodeSaver
from specchat.tui.actions.context_actions import ContextActions
from specchat.tui.actions.conversation_actions import ConversationActions
from specchat.tui.actions.external_editor import ExternalEditor
from specchat.tui.actions.hint_actions import HintActions
from specchat.tui.actions.leaving import Leaving
from specchat.tui.actions.message_actions import MessageActions
from specchat.tui.actions.pair_actions import PairActions
from specchat.tui.actions.race_actions import RaceActions
from specchat.tui.actions.regeneration import Regeneration
from specchat.tui.actions.schema_switch import SchemaSwitch
from specchat.tui.actions.serve_actions import ServeActions
from specchat.tui.actions.settings_dialogs import SettingsDialogs
from specchat.tui.actions.think_switch import ThinkSwitch
from specchat.tui.commands import CANCEL_EDIT
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView


class ChatActions:
    """The groups of actions, each with those that it needs."""

    def __init__(self, view: MainView, state: ChatState) -> None:
        """Create the groups."""
        self._view, self._state = view, state
        self.context = ContextActions(view, state)
        self.messages = MessageActions(view, state, self.context)
        self.conversations = ConversationActions(view, state)
        self.races = RaceActions(view, state)
        self.pairs = PairActions(view, state)
        self.regeneration = Regeneration(view, state, self.pairs)
        self.hints = HintActions(view, state, self.pairs)
        self.settings = SettingsDialogs(view, state)
        self.think = ThinkSwitch(view, state)
        self.schema = SchemaSwitch(view, state)
        self.serving = ServeActions(view, state)
        self.code_saver = CodeSaver(view, state)
        self.editor = ExternalEditor(view)
        self.attaching = Attaching(view, state)
        self.leaving = Leaving(view, state)
        self.calls: Mapping[str, Callable[..., Any]] = {
            **self._on_the_screen(), **self._on_conversations(), **self._on_models(),
        }  # fmt: skip
        """What to call for each command, by its id."""
        self.key_calls: Mapping[str, Callable[..., Any]] = {
            "latest": view.navigation.follow_newest,
            "page": view.navigation.scroll_page,
            "step_focus": view.navigation.step_focus,
            "message": self.messages.act_on_focused,
            "conversation": self.conversations.act_on_marked,
            "leave": self.leaving.leave,
            "help_quit": self.leaving.interrupt,
            CANCEL_EDIT: self._state.questions.stop,
            "detach": self.attaching.detach,
        }
        """What to call for the keys that are no commands, by the action of their bindings."""

    def _on_the_screen(self) -> dict[str, Callable[..., Any]]:
        view = self._view
        return {
            "help": self.messages.show_help,
            "panel": view.navigation.toggle_panel,
            "origins": view.appearance.toggle_origins,
            "ghost": self._state.answers.ghosts.toggle,
            "steps": self.messages.show_last_steps,
            "statistics": self.messages.show_statistics,
            "theme": lambda: view.app.run_worker(self.settings.choose_theme()),
            "copy": self.messages.copy_last,
            "save": self.code_saver.save,
            "edit": self.editor.act,
            "attach": self.attaching.attach,
            "hide": self.hints.hide,
            "accept": partial(self.hints.accept, "accept"),
            "accept_second": partial(self.hints.accept, "accept_second"),
            "quit": view.app.exit,
        }

    def _on_conversations(self) -> dict[str, Callable[..., Any]]:
        view, chats, questions = self._view, self.conversations, self._state.questions
        return {
            "conversations": view.navigation.toggle_conversations,
            "new": chats.new,
            "rename": lambda: view.app.run_worker(chats.rename()),
            "search": lambda: view.app.run_worker(chats.search()),
            "search_here": lambda: view.app.run_worker(chats.search_here()),
            "system": lambda: view.app.run_worker(chats.edit_system_prompt()),
            "presets": lambda: view.app.run_worker(chats.choose_preset()),
            "export": chats.export,
            "undo": chats.undo,
            "context": self.context.show,
            "pin": self.context.pin,
            "compact": self.context.compact,
            "schema": self.schema.act,
            "go_on": questions.go_on,
            "stop": questions.stop,
            "regenerate": self.regeneration.act,
            "compare": self.races.act,
            "settings": lambda marked=None: view.app.run_worker(self.settings.change(marked)),
            "think": self.think.act,
        }

    def _on_models(self) -> dict[str, Callable[..., Any]]:
        return {
            "models": self.pairs.show,
            "improve": self.pairs.improve,
            "restart": self.pairs.restart,
            "unload": self.pairs.unload,
            "serve": self.serving.act,
        }
