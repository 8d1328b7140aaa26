"""The llama network of the demo pair: the same as that of trained drafts."""

from specchat.derivation.draft_network import NORM_EPSILON, ROPE_BASE, Network, Shape

__all__ = ["NORM_EPSILON", "ROPE_BASE", "Network", "Shape"]
