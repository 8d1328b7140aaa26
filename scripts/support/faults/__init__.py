"""Faults injected into specchat at random moments, and what must hold after each."""
