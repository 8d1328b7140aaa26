"""Checking a machine: what specchat needs, whether it is here, and the command that mends it."""
