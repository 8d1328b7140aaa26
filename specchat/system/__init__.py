"""What the operating system has and wants: private files, logs, limits, editors."""
