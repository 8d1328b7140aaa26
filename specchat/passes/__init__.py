"""What a model's passes cost on this machine, which of them are exact, and which to pad."""
