"""Install specchat from wheels into a new environment, and ask the demo pair a question.

It takes wheels of specchat and of llama-cpp-python from folders and everything else from the
package index. It fails if anything is built from source, or if the answer is not the one that
every build of llama.cpp gives.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

QUESTION, EXPECTED = "What is specchat?", "terminal chat"
"""The demo pair knows the answer by heart."""


def main() -> int:
    """Install, ask and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path, help="specchat's wheel")
    parser.add_argument("--find-links", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--system", action="store_true", help="install into this environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return try_out(options.wheel, options.find_links, Path(folder), is_new=not options.system)


def try_out(wheel: Path, links: list[Path], folder: Path, *, is_new: bool) -> int:
    """Install the wheels and ask, with a home folder of its own; return the exit code."""
    begun = time.monotonic()
    python = sys.executable
    if is_new:
        venv.create(folder / "environment", with_pip=True)
        python = str(folder / "environment" / "bin" / "python")
    from_source = ["--only-binary", "llama-cpp-python"]
    places = [word for link in links for word in ("--find-links", str(link))]
    install = [python, "-m", "pip", "install", "--quiet", *from_source, *places, str(wheel)]
    subprocess.run(install, check=True)
    installed = time.monotonic()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(folder), "SPECCHAT_OFFLINE": "1"}
    command = [python, "-P", "-m", "specchat"]
    ask = [*command, "ask", "--no-stdin", "--temperature", "0", QUESTION]
    asked = subprocess.run(
        ask, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    answered = time.monotonic()
    print(f"installed in {installed - begun:.1f} s, answered in {answered - installed:.1f} s")
    print(asked.stdout.strip() or asked.stderr.strip())
    subprocess.run([*command, "doctor"], env=environment, cwd=folder, check=False)
    if asked.returncode or EXPECTED not in asked.stdout:
        print(f"{Path(__file__).name}: the answer is wrong", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
