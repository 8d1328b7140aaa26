"""The operating system's side: private files, logs, limits, editors."""
