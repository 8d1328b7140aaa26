"""The algorithm: distributions, verification, the loop and its statistics.

Works on small protocols and knows nothing of llama.cpp, so that a toy language model whose exact
distribution is known can stand in for it. Imports only NumPy, specchat.options, specchat.errors
and the drafter registry.
"""
