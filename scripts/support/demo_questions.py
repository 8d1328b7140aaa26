"""Questions that the demo pair answers."""

from __future__ import annotations

QUESTIONS = (
    "What is speculative decoding?",
    "Tell me a story about a fox.",
    "How do I start?",
    "What is a draft model?",
    "Explain the context.",
    "Write a list of fruits.",
    "What is a token?",
    "Why is it fast?",
)
