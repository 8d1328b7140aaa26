"""A small vocabulary with a tokenizer, for the tests of grammars that need no model."""

import re

from specchat.structured.grammar_vocabulary import GrammarVocabulary

WORDS = (
    *('{"', '":', '",', '"}', ' "', '": "', '", "', "name", "age", "kind", "yes", "please", "no"),
    *("true", "false", "null", "al", "alpha", "beta", "ta", "12", "123", "\n\n", "  ", '"]', "}}"),
    *("é", "日", "ab", "abc", "{", "}\n", "</", "think>", "</think>\n", "x</", "end"),
)
END, OTHER_END, THINK, END_OF_THINKING, CALL, END_OF_CALL = SPECIAL = tuple(range(256, 262))
NAMES = ("<|end|>", "<|stop|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
PIECES = (
    *(bytes([byte]) for byte in range(256)),
    *(name.encode() for name in NAMES),
    *(word.encode() for word in dict.fromkeys(WORDS) if len(word.encode()) > 1),
)
ENDS = (END, OTHER_END)
_TEXTS = {piece: token for token, piece in enumerate(PIECES) if token not in SPECIAL}
_LONGEST_FIRST = re.compile(
    b"|".join(re.escape(piece) for piece in sorted(_TEXTS, key=len, reverse=True)), re.DOTALL
)


def tokenize(text: str) -> list[int]:
    """Return the tokens of a text: the longest that fits, from left to right."""
    return [_TEXTS[piece] for piece in _LONGEST_FIRST.findall(text.encode())]


def written(text: str) -> list[int]:
    """Return the tokens of a text in which special tokens are written by name."""
    parts = TOY.split(text)
    return [
        token for part in parts for token in ([part] if isinstance(part, int) else tokenize(part))
    ]


def text_of(tokens: list[int]) -> str:
    """Return the text of tokens."""
    return b"".join(PIECES[token] for token in tokens).decode("utf-8", "replace")


TOY = GrammarVocabulary(len(PIECES), PIECES.__getitem__, SPECIAL.__contains__, ENDS, tokenize)
