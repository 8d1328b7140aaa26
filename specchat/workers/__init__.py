"""Workers: other machines that lend their devices over llama.cpp's RPC backend.

What specchat asks them without llama.cpp: whether they are there, what they offer, how they are.
"""
