"""The chat: a Textual application. Only this package imports Textual."""
