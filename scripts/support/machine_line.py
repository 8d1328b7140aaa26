"""The machine that figures were measured on, as one line."""

from __future__ import annotations

from specchat.bench.measurement import machine_record


def machine_line() -> str:
    """Return the machine this runs on as one line."""
    record = machine_record()
    return (
        f"{record['processor']}, {record['cores']} cores; {record['system']}; "
        f"Python {record['python']}"
    )
