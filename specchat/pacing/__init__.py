"""How much to draft: what passes cost on this machine, and how often drafts are accepted."""
