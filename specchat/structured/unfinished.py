"""Where an answer in JSON was cut off."""

import re

STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def unfinished_place(text: str) -> str:
    """Return the path of the value that JSON text breaks off in, such as `items[2].name`.

    Empty if that is the whole text, or if it is complete.
    """
    path: list[str] = []
    key, at = "", 0
    while at < len(text):
        mark = text[at]
        if mark == '"':
            string = STRING.match(text, at)
            at = string.end() if string else len(text)
            key = string[0] if string else ""
            continue
        if mark == "{":
            path.append("")
        elif mark == "[":
            path.append("[0]")
        elif mark in "}]" and path:
            path.pop()
        elif mark == ":" and path and not path[-1].startswith("["):
            path[-1] = f".{key.strip(chr(34))}"
        elif mark == "," and path:
            last = path[-1]
            path[-1] = f"[{int(last[1:-1]) + 1}]" if last.startswith("[") else ""
        at += 1
    return "".join(path).lstrip(".")
