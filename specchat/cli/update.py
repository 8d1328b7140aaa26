"""`specchat update`: how to update this copy of specchat; nothing is asked of the network."""

import argparse

import specchat
from specchat.cli.terminal import print_exactly, print_json, say
from specchat.doctor.install_method import find_installation


def run(arguments: argparse.Namespace) -> None:
    """Print the commands that update specchat, one a line, for the way it was installed."""
    installation = find_installation()
    if arguments.json:
        record = {"version": specchat.__version__, "method": installation.method}
        print_json(
            {**record, "folder": str(installation.folder), "commands": installation.commands}
        )
        return
    say(f"specchat {specchat.__version__}, installed from {installation}; to update it:")
    print_exactly("\n".join(installation.commands))
