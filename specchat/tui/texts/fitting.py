"""Lines of facts that are cut where it matters least; no widgets here."""

from rich.cells import cell_len

BETWEEN = " · "


def fitted(line: str, width: int) -> str:
    """Return a line without the facts at its end that do not fit into a width; the first stays."""
    facts = line.split(BETWEEN)
    while len(facts) > 1 and cell_len(BETWEEN.join(facts)) > width:
        facts.pop()
    return BETWEEN.join(facts)
