"""What a model's passes cost on this machine, by their number of tokens."""
