"""A toy language model whose exact distribution is known, to test drafters and verifiers with."""
