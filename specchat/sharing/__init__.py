"""One engine for all its clients: its owner thread, its process, and the stream of answers."""
