"""How `Engine.load` loads a pair: into this process, or into one of its own.

llama.cpp is imported when the first engine is loaded.
"""

from pathlib import Path

from specchat.engine.api import Engine, Loading, LoadRequest
from specchat.options.declarations import LoadOptions

__all__ = ["Engine"]


def _open(request: LoadRequest) -> Engine:
    draft = Path(request.draft) if request.draft else None
    loading = Loading(Path(request.target), draft, **request.values(LoadOptions))
    if request.process or loading.workers:  # a lost worker ends the process that uses it
        from specchat.sharing.process_engine import ProcessEngine

        return ProcessEngine(loading, request.on_progress)
    from specchat.engine.local_engine import LocalEngine

    return LocalEngine(loading, request.on_progress)


Engine.opener = staticmethod(_open)
