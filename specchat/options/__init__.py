"""Every option once: name, type, range, default, help."""
