"""Write a copy of a GGUF model with another vocabulary: permuted, and a known part replaced.

The copy answers as the original does, in other token ids. Some of its tokens have texts that never
occur, so it lacks those that they replace, and spells them with others. As a draft for the original
it shows what a draft of another vocabulary loses: see `specchat help models`.
"""

import argparse
from pathlib import Path

from scripts.support.other_vocabulary import write_copy


def main() -> None:
    """Write the copy and say what was changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the model")
    parser.add_argument("copy", type=Path, help="the file to write")
    parser.add_argument("--share", type=float, default=0.1, help="of all tokens to replace")
    parser.add_argument("--seed", type=int, help="replace tokens at random, not the rarest")
    parser.add_argument("--renamed", default="", help="added to the names of control tokens")
    options = parser.parse_args()
    count = write_copy(options.source, options.copy, options.share, options.seed, options.renamed)
    print(f"{options.copy}: {count} tokens replaced")


if __name__ == "__main__":
    main()
