"""The settings: options read from one TOML file and the environment.

The engine never reads them: a script's results do not depend on a user's file.
"""
