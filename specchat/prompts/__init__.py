"""From a request to a prompt: tokens, what the answer may be, and how its text is read."""
