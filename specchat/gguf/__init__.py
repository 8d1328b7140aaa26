"""The headers of GGUF files, read without llama.cpp; files are never trusted.

Imports only errors and the standard library, because `specchat list` reads all local models.
"""
