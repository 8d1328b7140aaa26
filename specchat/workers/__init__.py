"""Workers: other machines that lend their devices over llama.cpp's RPC backend.

This package asks them, without llama.cpp, whether they are there, what they offer, and how they
are.
"""
