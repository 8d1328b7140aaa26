"""Tiny GGUF models that the tests write for themselves: random weights, real architectures.

A file takes some hundred kilobytes and well under a second. Weights depend only on the seed and
the tensor's name, so two files of one seed share every layer that both of them have.
"""

from scripts.support.tiny_gguf.heads import write_with_head
from scripts.support.tiny_gguf.parrot import Piece, Words, bytes_of, ids_of, pieces_of, write_parrot
from scripts.support.tiny_gguf.projectors import write_projector
from scripts.support.tiny_gguf.shapes import ARCHITECTURES, HOLLOW_ALONE, Shape
from scripts.support.tiny_gguf.vocabulary import CHAT_TEMPLATE, Vocabulary
from scripts.support.tiny_gguf.weights import HALF_RIGHT, Mixture
from scripts.support.tiny_gguf.writing import (
    Quantisation,
    truncate,
    write_big_vocabulary,
    write_hollow,
    write_model,
)

__all__ = [
    "ARCHITECTURES",
    "CHAT_TEMPLATE",
    "HALF_RIGHT",
    "HOLLOW_ALONE",
    "Mixture",
    "Piece",
    "Quantisation",
    "Shape",
    "Vocabulary",
    "Words",
    "bytes_of",
    "ids_of",
    "pieces_of",
    "truncate",
    "write_big_vocabulary",
    "write_hollow",
    "write_model",
    "write_parrot",
    "write_projector",
    "write_with_head",
]
