"""Write the pages of a package index (PEP 503) for folders of wheels.

`INDEX/NAME/` becomes an index of its own for each folder `NAME` of wheels, so that a user chooses a
backend by the address: `--extra-index-url ADDRESS/NAME/`.
"""

import argparse
import hashlib
import re
import shutil
import sys
from html import escape
from pathlib import Path
from urllib.parse import quote

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0">
<title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def main() -> int:
    """Write the pages and copy the wheels; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="+", help="a folder of wheels")
    parser.add_argument("--out", type=Path, required=True, metavar="INDEX")
    options = parser.parse_args()
    for folder in options.folder:
        if not write_index(folder, options.out / folder.name):
            print(f"{Path(__file__).name}: {folder} has no wheel", file=sys.stderr)
            return 1
    names = sorted(path.name for path in options.out.iterdir() if path.is_dir())
    write_page(options.out, "Wheels for specchat", {f"{name}/": name for name in names})
    return 0


def write_index(folder: Path, out: Path) -> int:
    """Write the index of a folder of wheels; return the number of wheels."""
    projects: dict[str, list[Path]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        projects.setdefault(normalized(wheel.name.partition("-")[0]), []).append(wheel)
    for project, wheels in projects.items():
        place = out / project
        place.mkdir(parents=True, exist_ok=True)
        links = {}
        for wheel in wheels:
            copy = shutil.copy(wheel, place / wheel.name)
            digest = hashlib.sha256(Path(copy).read_bytes()).hexdigest()
            links[f"{quote(wheel.name)}#sha256={digest}"] = wheel.name
        write_page(place, project, links)
    if projects:
        write_page(out, folder.name, {f"{project}/": project for project in projects})
    return sum(map(len, projects.values()))


def normalized(name: str) -> str:
    """Return a project's name as it is in addresses (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def write_page(folder: Path, title: str, links: dict[str, str]) -> None:
    """Write a folder's page of links, given by their addresses."""
    rows = [
        f'<a href="{escape(address)}">{escape(name)}</a><br>' for address, name in links.items()
    ]
    (folder / "index.html").write_text(PAGE.format(title=escape(title), links="\n".join(rows)))


if __name__ == "__main__":
    sys.exit(main())
