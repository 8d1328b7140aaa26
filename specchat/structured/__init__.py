"""Structured output: answers that a JSON Schema, an expression or a grammar allows.

Alone knows llguidance, which says what may come next. `structure` is light to import and all that
front ends need; the rest is imported when the first answer with a structure begins.
"""
