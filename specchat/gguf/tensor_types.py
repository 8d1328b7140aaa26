"""ggml's tensor types, and the names of quantizations."""

from typing import NamedTuple


class StoredType(NamedTuple):
    """A tensor type: blocks of `num_values` values take `num_bytes` bytes."""

    name: str
    num_values: int
    num_bytes: int


STORED_TYPES: dict[int, StoredType] = {
    0: StoredType("f32", 1, 4),
    1: StoredType("f16", 1, 2),
    2: StoredType("q4_0", 32, 18),
    3: StoredType("q4_1", 32, 20),
    6: StoredType("q5_0", 32, 22),
    7: StoredType("q5_1", 32, 24),
    8: StoredType("q8_0", 32, 34),
    9: StoredType("q8_1", 32, 36),
    10: StoredType("q2_K", 256, 84),
    11: StoredType("q3_K", 256, 110),
    12: StoredType("q4_K", 256, 144),
    13: StoredType("q5_K", 256, 176),
    14: StoredType("q6_K", 256, 210),
    15: StoredType("q8_K", 256, 292),
    16: StoredType("iq2_xxs", 256, 66),
    17: StoredType("iq2_xs", 256, 74),
    18: StoredType("iq3_xxs", 256, 98),
    19: StoredType("iq1_s", 256, 50),
    20: StoredType("iq4_nl", 32, 18),
    21: StoredType("iq3_s", 256, 110),
    22: StoredType("iq2_s", 256, 82),
    23: StoredType("iq4_xs", 256, 136),
    24: StoredType("i8", 1, 1),
    25: StoredType("i16", 1, 2),
    26: StoredType("i32", 1, 4),
    27: StoredType("i64", 1, 8),
    28: StoredType("f64", 1, 8),
    29: StoredType("iq1_m", 256, 56),
    30: StoredType("bf16", 1, 2),
    34: StoredType("tq1_0", 256, 54),
    35: StoredType("tq2_0", 256, 66),
    39: StoredType("mxfp4", 32, 17),
    40: StoredType("nvfp4", 64, 36),
    41: StoredType("q1_0", 128, 18),
    42: StoredType("q2_0", 64, 18),
}
"""By ggml's number (enum ggml_type); the missing numbers are types ggml no longer reads."""

FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
"""By llama.cpp's number in general.file_type (enum llama_ftype)."""
