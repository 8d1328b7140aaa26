"""The drafters, one file each, and the factory that makes them.

A drafter uses only the protocols of specchat.decoding; this package imports nothing of llama.cpp.
"""
