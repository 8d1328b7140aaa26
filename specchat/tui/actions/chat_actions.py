"""What each command of the chat does: the groups of actions, and a table of their methods."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from specchat.tui.actions.code_saver import CodeSaver
from specchat.tui.actions.context_actions import ContextActions
from specchat.tui.actions.conversation_actions import ConversationActions
from specchat.tui.actions.external_editor import ExternalEditor
from specchat.tui.actions.hint_actions import HintActions
from specchat.tui.actions.message_actions import MessageActions
from specchat.tui.actions.pair_actions import PairActions
from specchat.tui.actions.race_actions import RaceActions
from specchat.tui.actions.regeneration import Regeneration
from specchat.tui.actions.schema_switch import SchemaSwitch
from specchat.tui.actions.serve_actions import ServeActions
from specchat.tui.actions.settings_dialogs import SettingsDialogs
from specchat.tui.actions.think_switch import ThinkSwitch
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.controllers.context_report import ContextReport
from specchat.tui.controllers.idle import IdleUnloader
from specchat.tui.controllers.races import Races
from specchat.tui.main_view import MainView
from specchat.tui.setup import Setup


class ChatActions:
    """The groups of actions, each with the controllers that it acts on."""

    def __init__(
        self,
        view: MainView,
        setup: Setup,
        state: ChatState,
        races: Races,
        idle: IdleUnloader,
        leave: Callable[[], None],
    ) -> None:
        """Create the groups; `leave` ends the chat."""
        chat, answers, options = state.conversations, state.answers, state.options
        pair, pulls, hint, key_of = state.pair_controller, state.pulls, state.hint, setup.key_of
        self.context = ContextActions(
            view, chat, answers, ContextReport(chat, answers, pair), key_of
        )
        self.messages = MessageActions(view, chat, answers, self.context, key_of)
        self.conversations = ConversationActions(view, chat, answers, options, key_of)
        self.races = RaceActions(view, races, answers)
        self.pairs = PairActions(
            view, setup, chat, answers, options, pair, pulls, hint, state.adviser
        )
        self.regeneration = Regeneration(view, answers, self.pairs, key_of)
        self.hints = HintActions(view, hint, pulls, answers, self.pairs, key_of)
        self.settings = SettingsDialogs(view, chat, options, pair, idle)
        self.think = ThinkSwitch(view, options, pair)
        self.schema = SchemaSwitch(view, chat)
        self.serving = ServeActions(view, state.serving)
        self.code_saver = CodeSaver(view, chat)
        self.editor = ExternalEditor(view)
        self.calls: Mapping[str, Callable[..., Any]] = {
            **self._on_the_screen(view), **self._on_conversations(view), **self._on_models(),
            "go_on": answers.go_on, "stop": answers.stop, "quit": leave,
        }  # fmt: skip
        """What to call for each command, by its id."""

    def _on_the_screen(self, view: MainView) -> dict[str, Callable[..., Any]]:
        return {
            "help": self.messages.show_help,
            "panel": view.navigation.toggle_panel,
            "origins": view.appearance.toggle_origins,
            "steps": self.messages.show_last_steps,
            "statistics": self.messages.show_statistics,
            "theme": lambda: view.app.run_worker(self.settings.choose_theme()),
            "copy": self.messages.copy_last,
            "save": self.code_saver.save,
            "edit": self.editor.act,
            "hide": self.hints.hide,
            "accept": partial(self.hints.accept, 0),
            "accept_second": partial(self.hints.accept, 1),
        }

    def _on_conversations(self, view: MainView) -> dict[str, Callable[..., Any]]:
        chats = self.conversations
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
            "regenerate": self.regeneration.act,
            "compare": self.races.act,
            "settings": lambda: view.app.run_worker(self.settings.change()),
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
