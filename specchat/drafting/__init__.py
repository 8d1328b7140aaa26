"""The drafters: one file each, and the registry that names them.

A drafter works on the protocols of specchat.decoding; this package imports nothing of llama.cpp.
"""
