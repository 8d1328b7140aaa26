"""What a GGUF file says about itself, read without llama.cpp; the file is never trusted.

Imports only errors and the standard library, because `specchat list` reads every model there is.
"""
