"""How much to draft: how often drafts are accepted, what one more token gains, what to explore."""
