"""Write a pair of GGUF files with random weights that behaves like a real one.

    python scripts/lab/make_pair.py [FOLDER] [--agreement 0.6] [--draft-layers 1] ...

Without a folder, it goes to the user's cache. Prints what was made and measured, as JSON.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from platformdirs import user_cache_path

from scripts.support.made_pair import Shape, make_pair


def main() -> int:
    """Read the command line, make the pair, print what it is like."""
    options = parse_arguments()
    shape = Shape(
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        kv_heads=options.kv_heads,
        feed_forward=options.feed_forward,
        vocabulary=options.vocabulary,
        draft_layers=options.draft_layers,
    )
    report = make_pair(
        options.folder,
        shape,
        agreement=options.agreement,
        top_probability=options.top_probability,
        threads=options.threads,
        tokens=options.tokens,
        seed=options.seed,
        gpu_layers=options.gpu_layers,
    )
    print(json.dumps(asdict(report), indent=2))
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    size = Shape()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    folder = user_cache_path("specchat") / "bench"
    parser.add_argument("folder", nargs="?", type=Path, default=folder)
    parser.add_argument("--layers", type=int, default=size.layers)
    parser.add_argument("--width", type=int, default=size.width)
    parser.add_argument("--heads", type=int, default=size.heads)
    parser.add_argument("--kv-heads", type=int, default=size.kv_heads)
    parser.add_argument("--feed-forward", type=int, default=size.feed_forward)
    parser.add_argument("--vocabulary", type=int, default=size.vocabulary)
    parser.add_argument("--draft-layers", type=int, default=size.draft_layers)
    parser.add_argument("--agreement", type=float, default=0.6, help="share of equal tokens")
    parser.add_argument("--top-probability", type=float, default=0.45, help="its median")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256, help="decoded per measurement")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu-layers", type=int, default=0, help="for the decoding that tunes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
