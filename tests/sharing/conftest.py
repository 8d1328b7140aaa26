"""Tiny models with few layers, and engines that are loaded quickly."""

from engine_fixtures import _short_measurement, full_measurement, shallow

__all__ = ["_short_measurement", "full_measurement", "shallow"]
