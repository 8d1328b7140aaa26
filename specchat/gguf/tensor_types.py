"""ggml's tensor types, and the names of quantizations."""

from typing import NamedTuple


class StoredType(NamedTuple):
    """A tensor type: blocks of `num_values` values take `num_bytes` bytes.

    `file_type` is llama.cpp's number, in general.file_type, of files in which most tensors have
    this type (enum llama_ftype).
    """

    name: str
    num_values: int
    num_bytes: int
    file_type: int | None = None


STORED_TYPES: dict[int, StoredType] = {
    0: StoredType("f32", 1, 4, 0),
    1: StoredType("f16", 1, 2, 1),
    2: StoredType("q4_0", 32, 18, 2),
    3: StoredType("q4_1", 32, 20, 3),
    6: StoredType("q5_0", 32, 22, 8),
    7: StoredType("q5_1", 32, 24, 9),
    8: StoredType("q8_0", 32, 34, 7),
    9: StoredType("q8_1", 32, 36),
    10: StoredType("q2_K", 256, 84, 10),
    11: StoredType("q3_K", 256, 110),
    12: StoredType("q4_K", 256, 144),
    13: StoredType("q5_K", 256, 176),
    14: StoredType("q6_K", 256, 210, 18),
    15: StoredType("q8_K", 256, 292),
    16: StoredType("iq2_xxs", 256, 66, 19),
    17: StoredType("iq2_xs", 256, 74, 20),
    18: StoredType("iq3_xxs", 256, 98, 23),
    19: StoredType("iq1_s", 256, 50, 24),
    20: StoredType("iq4_nl", 32, 18, 25),
    21: StoredType("iq3_s", 256, 110, 26),
    22: StoredType("iq2_s", 256, 82, 28),
    23: StoredType("iq4_xs", 256, 136, 30),
    24: StoredType("i8", 1, 1),
    25: StoredType("i16", 1, 2),
    26: StoredType("i32", 1, 4),
    27: StoredType("i64", 1, 8),
    28: StoredType("f64", 1, 8),
    29: StoredType("iq1_m", 256, 56, 31),
    30: StoredType("bf16", 1, 2, 32),
    34: StoredType("tq1_0", 256, 54, 36),
    35: StoredType("tq2_0", 256, 66, 37),
    39: StoredType("mxfp4", 32, 17, 38),
    40: StoredType("nvfp4", 64, 36, 39),
    41: StoredType("q1_0", 128, 18, 40),
    42: StoredType("q2_0", 64, 18, 41),
}
"""By ggml's number (enum ggml_type); the missing numbers are types ggml no longer reads."""

MIXTURES = {
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    21: "Q2_K_S",
    22: "IQ3_XS",
    27: "IQ3_M",
    29: "IQ2_M",
}
"""The names of mixed quantizations by llama.cpp's file type."""

FILE_TYPES = {
    kind.file_type: kind.name.upper()
    for kind in STORED_TYPES.values()
    if kind.file_type is not None
} | MIXTURES
"""The names of quantizations by general.file_type."""
