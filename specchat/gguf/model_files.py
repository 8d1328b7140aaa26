"""Reads the files of a pair, checking that they can be a target and draft for it."""

from pathlib import Path

from specchat.errors import IncompatibleDraft, ModelWontLoad
from specchat.gguf.draft_kinds import is_head_only, kind_of_file, own_head, why_no_head
from specchat.gguf.fatal_values import OTHER_FILE, why_fatal
from specchat.gguf.header import Header
from specchat.gguf.purpose import why_no_text
from specchat.gguf.reader import read_header
from specchat.gguf.unfinished_file import why_unwritten


def read_whole_model(path: Path) -> Header:
    """Return the header of a model to load.

    Raises as `read_header` does, and ModelWontLoad for a file without a text-generation model.
    """
    header = read_header(path)
    require_text(header)
    if is_head_only(header):
        raise ModelWontLoad(
            f"{path} holds only a prediction head, not a whole model: choose the full model"
        )
    return header


def require_text(header: Header) -> None:
    """Raise ModelWontLoad for a file that does not hold a text-generation model."""
    if reason := why_no_text(header):
        raise ModelWontLoad(f"{header.path} is {reason}")
    if reason := why_unwritten(header):
        raise ModelWontLoad(reason)
    if reason := why_fatal(header):
        raise ModelWontLoad(f"{header.path} cannot be loaded: {reason}; {OTHER_FILE}")


def read_pair(
    target: Path, draft: Path | None, *, with_head: bool = True
) -> tuple[Header, Header | None]:
    """Return the headers of a target and of its draft: a model, a head, or None.

    Without a `draft`, it is the head in the target's file, if usable and `with_head` is set.
    Raises as `read_whole_model` does, and IncompatibleDraft for a head that does not fit.
    """
    model = read_whole_model(target)
    if draft is None:
        return model, own_head(model) if with_head else None
    of_file = read_header(draft)
    kind = kind_of_file(of_file)
    if not kind.is_head:
        require_text(of_file)
    elif reason := why_no_head(of_file) or kind.why_unfit(model, of_file):
        raise IncompatibleDraft(
            f"{draft.name} cannot draft for {target.name}: {reason}; choose the head that belongs"
            " to the target, or --draft none"
        )
    return model, kind.header(of_file)
