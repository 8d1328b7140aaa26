"""Why an engine's process has ended by itself, in one line: how, and what may help."""

from specchat.engine.api import Loading
from specchat.errors import EngineFailed, ModelWontLoad, SpecchatError
from specchat.gguf.fatal_values import OTHER_FILE
from specchat.planning.device import find_machine
from specchat.sharing import engine_host
from specchat.system.logs import failed_assertion, latest_log, log_path
from specchat.system.python_child import ILLEGAL_INSTRUCTION, death_of

LOGS = (engine_host.LOG, "llama.log")
"""The logs of the process's output and of llama.cpp."""
OTHER_CPU = "llama.cpp was built for another CPU: `specchat doctor` prints how to rebuild it"
BAD_ADDRESS = ("SIGSEGV", "SIGBUS", "an access violation")
"""How a process may end if the build uses AMX on a virtual machine that reports it in vain."""
IF_AGAIN = "if it crashes again, `specchat doctor` tests the build and prints how to repair it"
KILLED = ("was ended by SIGKILL", "was ended by a lack of memory")
"""How a process ends if the system kills it for lack of memory."""


def explain_death(
    loading: Loading, exit_code: int | None, log_begins: int, *, is_loaded: bool, is_killed: bool
) -> SpecchatError:
    """Return the error for a process that has ended; `is_killed` if this process killed it.

    What it wrote is in its log from the byte `log_begins` on.
    """
    how = _ending(exit_code)
    if assertion := failed_assertion(engine_host.LOG, log_begins):
        how = f"{how} ({assertion}, see {log_path(engine_host.LOG)})"
    advice = _advice(loading, has_log=not assertion)
    if how.endswith(ILLEGAL_INSTRUCTION):
        advice = OTHER_CPU
    elif how.endswith(BAD_ADDRESS) and not _may_be_on_gpus(loading):
        advice = f"{advice}; {IF_AGAIN}"
    elif how in KILLED and not is_killed:
        if "lack of memory" not in how:
            how = f"{how}, probably because memory ran out"
        advice = _memory_advice(loading)
    if is_loaded:
        return EngineFailed(f"the engine process {how}: {advice}")
    if assertion:
        advice = advice.replace("try again", OTHER_FILE)
    return ModelWontLoad(f"the engine process {how} while loading: {advice}")


def _ending(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    death = death_of(code)
    return f"was ended by {death}" if death else f"ended with exit code {code}"


def _advice(loading: Loading, *, has_log: bool = True) -> str:
    """Return advice: the log that says why a process ended, and what may help."""
    log = latest_log(*LOGS) if has_log else None
    where = f"see {log}; " if log else ""
    if not _may_be_on_gpus(loading):
        return f"{where}try again"
    or_without = "" if loading.flash_attention == "off" else "--flash-attention off or "
    return f"{where}try again, or use {or_without}--gpu-layers 0"


def _memory_advice(loading: Loading) -> str:
    """Return advice on how to use less of the host's memory."""
    without = "" if loading.draft is None else ", --draft none"
    mlock = ", no --mlock" if loading.mlock else ""
    # layers on an integrated GPU are in the host's memory, too
    fewer = ", or fewer --gpu-layers" if _may_be_on_gpus(loading) else ""
    return f"try a smaller --ctx or a smaller model{without}{mlock}{fewer}"


def _may_be_on_gpus(loading: Loading) -> bool:
    of_draft = loading.draft_layers if loading.draft else 0
    return bool(find_machine().gpus) and (loading.gpu_layers, of_draft) != (0, 0)
