"""How much memory a model takes, and the plan for this machine's devices."""
