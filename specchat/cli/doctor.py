"""`specchat doctor`: check this machine and show how to fix what is wrong."""

import argparse
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

from specchat import __version__
from specchat.cli.terminal import DONE, FAILED, has_colours, print_json, show_line
from specchat.doctor import Finding, backend, host
from specchat.doctor.model_memory import check_ram
from specchat.doctor.model_speeds import check_speeds
from specchat.doctor.system_gpus import find_system_gpus
from specchat.doctor.worker_checks import check_worker
from specchat.errors import SpecchatError
from specchat.hub.offline import go_offline, is_offline
from specchat.llama.child_process import ask_for_build
from specchat.options.worker_address import WorkerAddress, worker_address
from specchat.planning.device import gpus_of, keep_gpus
from specchat.safe_text import harmless
from specchat.settings.sources import read_settings

COLOURS = {"ok": "\x1b[32m", "warning": "\x1b[33m", "problem": "\x1b[31m"}
FAINT, PLAIN = "\x1b[2m", "\x1b[0m"
STATE_WIDTH, NAME_WIDTH = 9, 14
NARROWEST = 40


def run(arguments: argparse.Namespace) -> int:
    """Print findings as they arrive; return 1 if there is a problem."""
    workers: Sequence[str] = arguments.workers or ()
    with suppress(SpecchatError):  # check_settings reports unreadable settings
        settings = read_settings()
        if settings["network.offline"]:
            go_offline()
        workers = workers or settings["model.workers"]
    findings = []
    for finding in _examine([worker_address(worker) for worker in workers]):
        show_line()
        findings.append(finding)
        if not arguments.json:
            print("\n".join(_lines(finding)), flush=True)
    is_well = not any(finding.state == "problem" for finding in findings)
    if arguments.json:
        records = [asdict(finding) for finding in findings]
        print_json({"well": is_well, "offline": is_offline(), "findings": records})
    else:
        print(f"\n{_verdict(findings)}")
    return DONE if is_well else FAILED


def _examine(workers: Sequence[WorkerAddress]) -> Iterator[Finding]:
    """Yield the findings of all checks; the progress line names the slow ones."""
    yield host.check_specchat()
    show_line("loading llama.cpp")
    build = ask_for_build()
    if build.report:
        keep_gpus(gpus_of(build.report.devices))
    yield backend.check_build(build)
    show_line("decoding on the CPU")
    yield backend.check_cpu()
    show_line("looking for GPUs")
    gpus = find_system_gpus() or (gpus_of(build.report.devices) if build.report else [])
    yield backend.check_gpus(gpus)
    show_line("decoding on the GPU")
    yield backend.check_offload(build, gpus)
    yield backend.check_images(build)
    for worker in workers:
        show_line(f"asking the worker {worker}")
        yield check_worker(worker, build, __version__)
    yield host.check_memory()
    yield host.check_disk()
    yield from host.check_folders()
    yield host.check_saved_files()
    yield host.check_settings()
    yield host.check_catalogue()
    show_line("reading the models")
    yield from check_ram()
    yield from check_speeds()
    show_line("contacting the hub")
    yield host.check_network()


def _lines(finding: Finding) -> Iterator[str]:
    """Yield a finding as a row, wrapped on a terminal, then its commands."""
    indent = STATE_WIDTH + NAME_WIDTH
    state = _coloured(f"{finding.state:<{STATE_WIDTH}}", COLOURS[finding.state])
    rows = [" ".join(row.split()) for row in finding.detail.splitlines()]
    text = [line for row in rows for line in _wrapped(harmless(row), indent)]
    yield f"{state}{finding.name:<{NAME_WIDTH}}{text[0]}"
    yield from (" " * indent + line for line in text[1:])
    for command in finding.fix:  # not wrapped, so that it can be copied
        yield (" " * STATE_WIDTH + _coloured(f"{'fix':<{NAME_WIDTH}}", FAINT) + harmless(command))


def _wrapped(text: str, indent: int) -> list[str]:
    if not sys.stdout.isatty():
        return [text]
    width = max(NARROWEST, shutil.get_terminal_size().columns - indent)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _verdict(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.state for finding in findings)
    parts = [
        f"{count} {state}{'s' * (count > 1)}"
        for state in ("problem", "warning")
        if (count := counts[state])
    ]
    return " and ".join(parts) if parts else "no problems found"


def _coloured(text: str, colour: str) -> str:
    return f"{colour}{text}{PLAIN}" if has_colours() else text
