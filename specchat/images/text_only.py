"""What is said where a model gets images and reads text only: the same words everywhere."""

TEXT_ONLY = "this model reads text only"
"""Why a model without a projector takes no images."""


def text_only(model: str, *, advises: bool = False) -> str:
    """Say that a model reads text only and, to whoever starts it, what it needs to read images."""
    advice = ": load it with --projector and the mmproj file that comes with it"
    return f"{model} reads text only" + (advice if advises else "")
