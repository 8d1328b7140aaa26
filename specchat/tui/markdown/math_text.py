# ruff: noqa: RUF001  # signs of mathematics
r"""Formulas in LaTeX as readable text: `$x^2 \leq \alpha$` as x² ≤ α.

A formula is translated only if every part of it is understood; all others are shown as they were
written. There is no layout in two dimensions: `\frac{a}{b + 1}` is a/(b + 1).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "zeta": "ζ", "eta": "η", "theta": "θ", "vartheta": "ϑ", "iota": "ι", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "varpi": "ϖ", "rho": "ρ",
    "varrho": "ϱ", "sigma": "σ", "varsigma": "ς", "tau": "τ", "upsilon": "υ", "phi": "ϕ",
    "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "Gamma": "Γ", "Delta": "Δ",
    "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Upsilon": "Υ", "Phi": "Φ",
    "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
RELATIONS = {
    "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠", "ne": "≠", "ll": "≪", "gg": "≫",
    "approx": "≈", "equiv": "≡", "cong": "≅", "sim": "∼", "simeq": "≃", "propto": "∝",
    "in": "∈", "notin": "∉", "ni": "∋", "subset": "⊂", "subseteq": "⊆", "supset": "⊃",
    "supseteq": "⊇", "mid": "∣", "parallel": "∥", "perp": "⊥", "models": "⊨", "vdash": "⊢",
    "to": "→", "rightarrow": "→", "leftarrow": "←", "gets": "←", "leftrightarrow": "↔",
    "Rightarrow": "⇒", "Leftarrow": "⇐", "Leftrightarrow": "⇔", "implies": "⟹", "iff": "⟺",
    "mapsto": "↦", "longrightarrow": "⟶", "prec": "≺", "succ": "≻", "doteq": "≐",
}  # fmt: skip
OPERATORS = {
    "times": "×", "cdot": "·", "div": "÷", "pm": "±", "mp": "∓", "ast": "∗", "star": "⋆",
    "circ": "∘", "bullet": "•", "oplus": "⊕", "otimes": "⊗", "odot": "⊙", "cup": "∪", "cap": "∩",
    "setminus": "∖", "wedge": "∧", "land": "∧", "vee": "∨", "lor": "∨", "neg": "¬", "lnot": "¬",
    "sum": "∑", "prod": "∏", "int": "∫", "iint": "∬", "oint": "∮", "partial": "∂", "nabla": "∇",
    "infty": "∞", "forall": "∀", "exists": "∃", "nexists": "∄", "emptyset": "∅",
    "varnothing": "∅", "angle": "∠", "triangle": "△", "ell": "ℓ", "hbar": "ℏ", "Re": "ℜ",
    "Im": "ℑ", "aleph": "ℵ", "prime": "′", "ldots": "…", "dots": "…", "cdots": "⋯", "vdots": "⋮",
    "therefore": "∴", "because": "∵", "top": "⊤", "bot": "⊥", "dagger": "†", "degree": "°",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "langle": "⟨", "rangle": "⟩",
    "lvert": "|", "rvert": "|", "vert": "|", "lVert": "‖", "rVert": "‖", "Vert": "‖",
    "lbrace": "{", "rbrace": "}", "|": "‖", "{": "{", "}": "}", "%": "%", "$": "$", "#": "#",
    "&": "&", "_": "_", "backslash": "\\",
}  # fmt: skip
SYMBOLS = {**GREEK, **RELATIONS, **OPERATORS}
SPACED = frozenset(RELATIONS) - {"mid"} | {"times", "cdot", "div", "pm", "mp", "cup", "cap"}
"""What LaTeX puts space around by itself."""
SPACES = {" ": " ", ",": " ", ";": " ", ":": " ", "!": "", "quad": "  ", "qquad": "    "}
FUNCTIONS = frozenset(
    [
        *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan"),
        *("sinh", "cosh", "tanh", "log", "ln", "lg", "exp", "min", "max", "sup", "inf", "lim"),
        *("det", "dim", "ker", "gcd", "deg", "arg", "Pr"),
    ]
)
TEXTS = frozenset({"text", "textrm", "textbf", "textit", "mathrm", "operatorname", "mbox"})
FONTS = frozenset({"mathbf", "mathit", "mathsf", "mathcal", "boldsymbol", "bm"})
"""Another face of a letter, which plain text does not have."""
SIZES = frozenset(
    [
        *("left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr"),
        *("displaystyle", "limits", "nolimits"),
    ]
)
DOUBLE = dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303", "dot": "\u0307", "ddot": "\u0308"}
RAISED = dict(
    zip(
        "0123456789+-=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVW∘′*",
        "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂ°′*",
        strict=True,
    )
)
LOWERED = dict(
    zip("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True)
)
PLAIN = frozenset("+-=<>()[].,;:!|/*? \n\t") | frozenset(SYMBOLS.values())
LONGEST_NAME = 3
"""Letters of a word that may be a product, as mgh; a longer one is no formula."""
MAX_LENGTH, MAX_DEPTH = 2000, 20
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[^\\]", re.DOTALL)
MARKS = ("$$", "$", "\\(", "\\[")
ALONE = re.compile(r"[\W\d]*", re.ASCII)
"""Figures and signs without a letter: nothing would be gained, and it may be money."""


class _NotUnderstoodError(Exception):
    """A part of a formula has no translation."""


@lru_cache(maxsize=512)
def readable_math(source: str) -> str | None:
    """Return a formula with its marks as text without them; None if it is not simple enough."""
    opening = next((mark for mark in MARKS if source.startswith(mark)), "")
    inside = source.strip().rstrip(".,;")
    if not opening or len(source) > MAX_LENGTH or len(inside) <= 2 * len(opening):
        return None
    ending = source.strip()[len(inside) :]
    inside = inside[len(opening) : -len(opening)].strip()
    is_one_letter = len(inside) == 1 and opening in {"$", "\\("}
    if ALONE.fullmatch(inside) or (len(inside) == 1 and not is_one_letter):
        return None
    if max(map(len, re.findall(r"(?<!\\)\b[A-Za-z]+", _without_commands(inside))), default=0) > (
        LONGEST_NAME
    ):
        return None
    try:
        text = _Translation(inside).text()
    except _NotUnderstoodError:
        return None
    lines = (" ".join(line.split()) for line in text.strip().split("\n"))
    return "\n".join(filter(None, lines)) + ending


def written_as(character: str) -> list[str]:
    r"""Return what a character of a readable formula may have been in its source: \alpha for α."""
    return SOURCES.get(character, [])


class _Translation:
    """Reads a formula from left to right."""

    def __init__(self, source: str, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise _NotUnderstoodError
        self._parts: list[str] = TOKEN.findall(source)
        self._index = 0
        self._depth = depth

    def text(self) -> str:
        """Return the whole formula."""
        text = ""
        while self._index < len(self._parts):
            part = self._next()
            if part in "^_" and len(part) == 1:
                text = text.rstrip() + self._script(part)
            elif part in {r"\frac", r"\dfrac", r"\tfrac"}:
                text += self._fraction(text)
            else:
                text = _joined(text, part, self._atom(part))
        return text

    def _next(self) -> str:
        """Return the next part."""
        if self._index >= len(self._parts):
            raise _NotUnderstoodError
        self._index += 1
        return self._parts[self._index - 1]

    def _atom(self, part: str) -> str:
        """Return a part, with its arguments, as text."""
        if part == "{":
            return self._translated(self._group())
        if part in {"}", "~"}:
            raise _NotUnderstoodError
        if part == "'":
            return "′"
        if not part.startswith("\\"):
            if part.isalnum() or part in PLAIN:
                return part
            raise _NotUnderstoodError
        return self._command(part[1:])

    def _command(self, name: str) -> str:
        if name in SYMBOLS:
            return f" {SYMBOLS[name]} " if name in SPACED else SYMBOLS[name]
        if name in SPACES or name in FUNCTIONS:
            return SPACES.get(name, name)
        if name in SIZES:
            return self._without_dot()
        return self._words() if name in TEXTS else self._of_argument(name)

    def _of_argument(self, name: str) -> str:
        """Return a command with its one argument."""
        if name in FONTS:
            return self._argument()
        if name == "sqrt":
            return f"√{_grouped(self._argument())}"
        if name == "mathbb":
            return _found(DOUBLE, self._argument())
        if name in ACCENTS:
            return _accented(self._argument(), ACCENTS[name])
        raise _NotUnderstoodError

    def _words(self) -> str:
        """Return the argument of a command whose content is not a formula."""
        words = self._argument_source()
        if set(words) & set("\\${}^_"):
            raise _NotUnderstoodError
        return words

    def _without_dot(self) -> str:
        r"""Return nothing: a size is not shown, nor is the dot of `\right.` for no bracket."""
        if self._index < len(self._parts) and self._parts[self._index] == ".":
            self._index += 1
        return ""

    def _script(self, mark: str) -> str:
        """Return an index or exponent, small if all its characters can be."""
        text = self._argument().strip()
        small = RAISED if mark == "^" else LOWERED
        compact = text.replace(" ", "")
        if compact and all(each in small for each in compact):
            return "".join(small[each] for each in compact)
        return mark + _grouped(text)

    def _fraction(self, before: str) -> str:
        top, bottom = self._argument(), self._argument()
        fraction = f"{_grouped(top)}/{_grouped(bottom)}"
        after = self._parts[self._index] if self._index < len(self._parts) else " "
        before = before[-1:]
        is_alone = after in " +-=,.;)]}<>\n" and (not before or before in " +-=,;([{<>\n")
        return fraction if is_alone else f"({fraction})"

    def _argument(self) -> str:
        """Return the next argument, a group or one part, as text."""
        return self._translated(self._argument_source())

    def _argument_source(self) -> str:
        part = self._next()
        while part == " ":
            part = self._next()
        if part == "{":
            return self._group()
        if part in "^_}[" or (part.startswith("\\") and part[1:] not in SYMBOLS):
            raise _NotUnderstoodError
        return part

    def _group(self) -> str:
        """Return the source up to the closing brace."""
        depth, inside = 1, ""
        while True:
            part = self._next()
            depth += (part == "{") - (part == "}")
            if not depth:
                return inside
            inside += part

    def _translated(self, source: str) -> str:
        return _Translation(source, self._depth + 1).text().strip()


def _joined(before: str, part: str, text: str) -> str:
    r"""Return texts with the space that LaTeX puts beside a function: \sin\theta is sin θ."""
    if part[1:] in FUNCTIONS and part.startswith("\\") and before[-1:].isalnum():
        return f"{before} {text}"
    is_after_function = re.search(r"(?<![a-z])(?:" + "|".join(FUNCTIONS) + ")$", before[-9:])
    if is_after_function and text[:1].isalnum() and part.startswith("\\"):
        return f"{before} {text}"
    return before + text


def _grouped(text: str) -> str:
    """Return a text in brackets, unless it is one number, letter or sign."""
    text = text.strip()
    is_one = len(text) == 1 or re.fullmatch(r"\d+(\.\d+)?", text)
    if not text:
        raise _NotUnderstoodError
    return text if is_one else f"({text})"


def _found(table: dict[str, str], key: str) -> str:
    if key not in table:
        raise _NotUnderstoodError
    return table[key]


def _accented(letter: str, accent: str) -> str:
    """Return a letter with an accent, if Unicode has it in one character."""
    text = unicodedata.normalize("NFC", letter + accent)
    if len(letter) != 1 or len(text) != 1:
        raise _NotUnderstoodError
    return text


def _without_commands(source: str) -> str:
    """Return a formula without its commands, and without what is text in it."""
    texts = "|".join(sorted(TEXTS, key=len, reverse=True))
    return re.sub(r"\\[A-Za-z]+", " ", re.sub(rf"\\(?:{texts})\s*\{{[^{{}}]*\}}", " ", source))


def _sources() -> dict[str, list[str]]:
    sources: dict[str, list[str]] = {}
    for name, symbol in SYMBOLS.items():
        sources.setdefault(symbol, []).append(f"\\{name}")
    for plain, small in [*RAISED.items(), *LOWERED.items()]:
        sources.setdefault(small, []).append(plain)
    for plain, double in DOUBLE.items():
        sources.setdefault(double, []).append(plain)
    return {**sources, "√": ["\\sqrt"]}


SOURCES = _sources()
