"""The pair, the options and the engine that a command's arguments ask for."""

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pair_drafts import with_best_draft, with_derived_draft, with_tuned_draft
from specchat.catalogue.pairs import (
    Pair,
    file_of,
    find_pair,
    load_pairs,
    require_savable,
    save_pair,
)
from specchat.catalogue.tuned_settings import find_tuned
from specchat.cli.server_argument import (
    ignored_options,
    is_connected,
    require_models_here,
    server_of,
    unknown_options,
)
from specchat.cli.terminal import say, show_line
from specchat.connection.address import ServerAddress
from specchat.drafter_registry import AUTO, MODELS, may_use
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.errors import InvalidOption, ModelNotFound, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.options.declarations import (
    AUTO_THINK,
    NO_DRAFT,
    NO_PROJECTOR,
    GenerateOptions,
    LoadOptions,
    think_values,
)
from specchat.requests.progress import STAGES, Stage, StageClock
from specchat.settings.sources import wrong_setting
from specchat.sharing.loading import load_in_process
from specchat.wording import percent, waited

DEMO_NOTICE = (
    "demo pair: a tiny model that knows little but specchat; for real answers, pull a pair that"
    " `specchat list` shows, or use your own GGUF files with --target FILE --draft FILE"
)


def is_demo(arguments: argparse.Namespace) -> bool:
    """Return True if the demo pair is used, which is the default."""
    return (
        not is_connected(arguments) and arguments.target is None and arguments.pair in {None, DEMO}
    )


def names_nothing(arguments: argparse.Namespace) -> bool:
    """Return True if neither the command line nor a setting says what answers."""
    names = arguments.pair, arguments.target, arguments.draft, arguments.save_as
    return not is_connected(arguments) and all(name is None for name in names)


def is_first_run(arguments: argparse.Namespace) -> bool:
    """Return True if the demo pair is used and no other pair is installed."""
    wants_offers = bool(arguments.settings["screen.offer_models"])
    return wants_offers and is_demo(arguments) and set(load_pairs()) == {DEMO}


def chosen_pair(arguments: argparse.Namespace, on_notice: Callable[[str], object] = say) -> Pair:
    """Return the pair that the arguments name, with a draft model.

    The draft model is the one named in the arguments, or else the one that tuning chose, or else
    the best one installed (with --target) or a derived one; `on_notice` gets these. Raises
    InvalidOption for a pair that --save-as cannot save, and if a server is to answer.
    """
    require_models_here(arguments)
    pair = _with_draft(named_pair(arguments), arguments, on_notice)
    if arguments.save_as is None:
        return pair
    if arguments.target is None:
        raise InvalidOption("--save-as needs --target FILE: other pairs already have a name")
    require_savable(arguments.save_as, pair.target, pair.draft)
    return replace(pair, name=arguments.save_as)


def save_loaded(arguments: argparse.Namespace, pair: Pair, facts: EngineFacts) -> str:
    """Save a loaded pair under the name of --save-as; return a notice, empty without --save-as."""
    if arguments.save_as is None:
        return ""
    if facts.draft and facts.draft_off_reason:
        return f"not saved as {arguments.save_as}: {facts.draft_off_reason}"
    settings = arguments.settings
    is_named = settings.source("model.workers") == "command line"
    workers = settings["model.workers"] if is_named else ()
    path = save_pair(arguments.save_as, pair.target, pair.draft, workers)
    return f"saved in {path}: use it with --pair {arguments.save_as}"


def _with_draft(
    pair: Pair, arguments: argparse.Namespace, on_notice: Callable[[str], object]
) -> Pair:
    if arguments.draft is not None:
        return pair
    if find_tuned(pair.target):
        return with_tuned_draft(pair)
    if not may_use(getattr(arguments, "drafter", AUTO), *MODELS):
        return pair
    is_file = arguments.target is not None
    paired = with_best_draft(pair) if is_file else with_derived_draft(pair)
    if paired is not pair and paired.draft:
        on_notice(paired.description)
    return paired


def named_pair(arguments: argparse.Namespace) -> Pair:
    """Return the pair that the arguments name, by name or by files; the demo pair if none."""
    is_named = arguments.draft not in {None, NO_DRAFT}
    with _naming_setting(arguments, "model.draft"):
        draft = file_of(arguments.draft.as_posix()) if is_named else None
    if arguments.target is not None:
        if arguments.pair is not None:
            raise InvalidOption("--pair and --target both name a target: use only one of them")
        with _naming_setting(arguments, "model.target"):
            target = file_of(arguments.target.as_posix())
        name = target.stem if target == arguments.target else arguments.target.as_posix()
        return Pair(name, "", target, draft, {})
    with _naming_setting(arguments, "model.pair"):
        pair = find_pair(arguments.pair or DEMO)
    return pair if arguments.draft is None else replace(pair, draft=draft)


@contextmanager
def _naming_setting(arguments: argparse.Namespace, name: str) -> Iterator[None]:
    """If a setting names a missing model, add its line or variable to the error."""
    try:
        yield
    except ModelNotFound as error:
        if arguments.settings.source(name) not in {"file", "environment"}:
            raise
        raise wrong_setting(arguments.settings, name, str(error)) from None


def loading_of(arguments: argparse.Namespace, pair: Pair, drafter: str = AUTO) -> Loading:
    """Return how to load a pair, with a draft model or head only if the drafter can use it.

    The pair's workers are used unless the user has set others, or none.
    """
    draft = pair.draft
    if draft and drafter != AUTO:
        from specchat.gguf.draft_kinds import kind_of_file
        from specchat.gguf.reader import read_header

        kind = kind_of_file(read_header(draft))
        draft = draft if may_use(drafter, kind.model_kind) else None
    of_pair: dict[str, Any] = {"head": may_use(drafter, "head")}
    of_pair["projector"] = _projector(arguments, pair)
    if draft and of_pair["projector"]:
        from specchat.catalogue.projectors import projector_for

        of_pair["draft_projector"] = projector_for(draft)
    if "workers" not in arguments.settings.given_values(LoadOptions):
        of_pair["workers"] = pair.workers
    return Loading(pair.target, draft, **{**arguments.settings.values(LoadOptions), **of_pair})


def _projector(arguments: argparse.Namespace, pair: Pair) -> Path | None:
    """Return the projector for a pair, as `chosen_projector` does.

    One that the command line names along with the pair must be for it, which loading checks.
    """
    from specchat.catalogue.projectors import chosen_projector

    given: Path | None = arguments.settings["model.projector"]
    with _naming_setting(arguments, "model.projector"):
        chosen = chosen_projector(given, pair.target)
    is_typed = arguments.settings.source("model.projector") == "command line"
    if given is None or given == NO_PROJECTOR or not (is_typed and _names(arguments, pair)):
        return chosen
    return given.expanduser()


def _names(arguments: argparse.Namespace, pair: Pair) -> bool:
    """Return True if the arguments name this pair's target."""
    with suppress(SpecchatError):
        return named_pair(arguments).target == pair.target
    return False


def generate_options(arguments: argparse.Namespace, pair: Pair) -> dict[str, Any]:
    """Return the options for `Engine.generate`: what the user set, else the pair's sampling.

    The drafter is the one that tuning chose, unless the user set a drafter or a draft model.
    """
    given = arguments.settings.given_values(GenerateOptions)
    is_set = arguments.drafter != AUTO or arguments.draft is not None
    tuned = None if is_set else find_tuned(pair.target)
    drafter = tuned.drafter if tuned else arguments.drafter
    return {**pair.sampling, **given, "drafter": drafter}


def with_known_think(
    options: dict[str, Any], facts: EngineFacts, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the options with a `think` value that the loaded model supports.

    An unsupported value from the settings or the environment is replaced by auto, with a notice.
    Raises InvalidOption for one from the command line.
    """
    word = options.get("think", AUTO_THINK)
    if facts.takes_think(word):
        return options
    if arguments.settings.source("chat.think") == "command line":
        values = think_values(facts.thinking)
        raise InvalidOption(f"{facts.target} does not support --think {word}: choose {values}")
    values = think_values(facts.thinking, last=", ")
    say(f"{facts.target} does not support think = {word} (only {values}): using auto")
    return {**options, "think": AUTO_THINK}


def asked(arguments: argparse.Namespace, question: str) -> list[ChatMessage]:
    """Return a conversation with one question, after the system prompt if there is one."""
    system, user = arguments.system_prompt, ChatMessage(role="user", content=question)
    return [{"role": "system", "content": system}, user] if system else [user]


_clock = StageClock()


def show_loading(stage: Stage, share: float) -> None:
    """Show the progress of loading a model, measuring it or reading a prompt.

    The line is cleared at the end. The engine repeats its progress while it stands still, so that
    the seconds move on. Nothing may be drawn over an answer that is being printed.
    """
    if stage == "worker" and not _clock.is_running:
        return
    seconds = _clock.seconds(stage)
    if share >= 1:
        _clock.reset()
        show_line()
    else:
        show_line(f"{STAGES[stage]} {percent(share):>5}{waited(seconds)}")


@dataclass(frozen=True, slots=True)
class Answerer:
    """The source of answers: a pair on this machine, or a server's model.

    `options` are those of its answers for `Engine.generate`.
    """

    name: str
    options: dict[str, Any]
    pair: Pair | None = None
    server: ServerAddress | None = None

    @property
    def title(self) -> str:
        """The target's name in the catalogue, empty if it has none."""
        return self.pair.title if self.pair else ""


def chosen_answerer(arguments: argparse.Namespace) -> Answerer:
    """Return the source of answers that the arguments name. Raises as `chosen_pair` does."""
    if not is_connected(arguments):
        if arguments.settings.source("model.served_model") == "command line":
            raise InvalidOption("--served-model names a model of a server: add --connect URL")
        pair = chosen_pair(arguments)
        return Answerer(pair.name, generate_options(arguments, pair), pair)
    if arguments.save_as is not None:
        raise InvalidOption("--save-as saves a pair on this machine: leave --connect out")
    for key in ("pair", "target"):
        if getattr(arguments, key) is not None:
            raise InvalidOption(
                f"--{key} and --connect both name what answers: use only one of them"
            )
    server = server_of(arguments)
    if flags := ignored_options(arguments):
        say(f"{server.shown} loads its models itself, so it ignores {', '.join(flags)}")
    options = {"drafter": AUTO, **arguments.settings.given_values(GenerateOptions)}
    return Answerer(server.name or server.shown, options, server=server)


@contextmanager
def open_answerer(
    arguments: argparse.Namespace, answerer: Answerer, drafter: str = ""
) -> Iterator[Engine]:
    """Load a pair for a drafter, that of its options by default, or connect to a server."""
    if answerer.pair is not None:
        used = drafter or answerer.options["drafter"]
        with open_engine(arguments, answerer.pair, used) as engine:
            yield engine
        return
    from specchat.connection.connected_engine import ConnectedEngine

    assert answerer.server is not None  # noqa: S101  # one of the two is set
    with ConnectedEngine(answerer.server, show_connecting) as engine:
        show_line()
        if flags := unknown_options(arguments, engine.server.dialect):
            say(f"{engine.facts.served_by} does not take {', '.join(flags)}: left out")
        for notice in engine.facts.notices:
            say(notice)
        yield engine


def show_connecting(stage: Stage, share: float) -> bool:
    """Show that specchat waits for a server, which reports no progress."""
    del stage
    show_line("" if share >= 1 else f"waiting for the server{waited(_clock.seconds('target'))}")
    return True


@contextmanager
def open_engine(arguments: argparse.Namespace, pair: Pair, drafter: str = AUTO) -> Iterator[Engine]:
    """Load a pair as `loading_of` says, and report any fallback that was not reported yet."""
    from specchat.catalogue.draft_choice import OTHER_VOCABULARY
    from specchat.planning.forecast import warning_of_disk

    loading = loading_of(arguments, pair, drafter)
    with suppress(SpecchatError, OSError):  # loading reports what is wrong with the files
        if warning := warning_of_disk(loading.target, loading.draft, loading):
            say(warning)
    with load_in_process(loading, show_loading) as engine:
        is_said = OTHER_VOCABULARY in pair.description  # when the draft was found
        for notice in (save_loaded(arguments, pair, engine.facts), *engine.facts.notices):
            if notice and not (is_said and OTHER_VOCABULARY in notice):
                say(notice)
        yield engine


@contextmanager
def stopping_on_interrupt(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl+C stop the work and the second one interrupt the command.

    Yields a function that returns True once Ctrl+C was pressed.
    """
    is_interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: is_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
