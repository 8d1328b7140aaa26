"""Write models that people run as GGUF files without weights, and print what is planned for them.

python scripts/lab/plan_models.py FOLDER --gpu 12 --ram 32

The files take no disk: their weights are holes. llama.cpp's tools can read them, too, so that plans
can be compared. `scripts/lab/update_docs.py` writes the table of these plans into models.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.support.model_headers import MODELS, write_header
from scripts.support.plan_table import fitted, planned
from specchat.gguf.reader import read_header
from specchat.planning.memory import Sizes


def main() -> None:
    """Write the files, and print a plan for each with its predicted speed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", type=int, default=12, metavar="GIB")
    parser.add_argument("--ram", type=int, default=32, metavar="GIB")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        sizes = Sizes(read_header(write_header(arguments.folder, model)))
        print(f"{model.name}, {sizes.header.num_bytes / 1e9:.2f} GB")
        for name, make in (("specchat", planned), ("--fit", fitted)):
            planner, plan = make(sizes, arguments.gpu, arguments.ram)
            rate = 1 / planner.step_seconds(plan)
            print(f"  {name}: {rate:.1f} tokens/s, {plan.summary}", flush=True)


if __name__ == "__main__":
    main()
