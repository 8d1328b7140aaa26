"""How `Engine.load` loads a pair: into this process, or into one of its own.

llama.cpp is imported when the first engine is loaded.
"""

from pathlib import Path

from specchat.engine.api import Engine, Loading, LoadRequest
from specchat.options.declarations import LoadOptions
from specchat.requests.progress import ProgressCallback

__all__ = ["Engine", "load_in_process"]


def load_in_process(loading: Loading, on_progress: ProgressCallback | None = None) -> Engine:
    """Load a pair into a process of its own; the first frame of the chat waits for no import."""
    from specchat.sharing.process_engine import ProcessEngine

    return ProcessEngine(loading, on_progress)


def _open(request: LoadRequest) -> Engine:
    draft = Path(request.draft) if request.draft else None
    loading = Loading(Path(request.target), draft, **request.values(LoadOptions))
    if request.process or loading.workers:  # a lost worker ends the process that uses it
        return load_in_process(loading, request.on_progress)
    from specchat.engine.local_engine import LocalEngine

    return LocalEngine(loading, request.on_progress)


Engine.opener = staticmethod(_open)
