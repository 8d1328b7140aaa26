"""Chat formats: how a template writes prompts, and how to parse its model's output."""
