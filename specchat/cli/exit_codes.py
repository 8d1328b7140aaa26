"""The exit codes of every command."""

DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130
