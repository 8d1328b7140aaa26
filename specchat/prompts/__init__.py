"""From a request to a prompt: its tokens, the answer's constraint, and the reader of its text."""
