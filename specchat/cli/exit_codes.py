"""The exit codes of every command."""

from __future__ import annotations

__all__ = ["DONE", "FAILED", "INTERRUPTED", "USAGE_ERROR"]

DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
