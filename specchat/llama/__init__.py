"""Everything that touches llama.cpp: models, contexts, rollback, the log, this machine's hardware.

The only package that imports llama_cpp and knows ctypes. It uses the low-level API alone: the
high-level `Llama` class redirects the process's output streams and copies whole rows of logits.
"""
