"""Chats and commands on a model that an HTTP server runs: an engine like any other."""
