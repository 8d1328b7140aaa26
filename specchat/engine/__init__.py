"""The engine: its interface, and a pair loaded into this process that answers requests."""
