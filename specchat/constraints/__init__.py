"""What an answer may contain: calls, schemas and grammars, and where in an answer they hold."""
