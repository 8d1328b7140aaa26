"""Set-up of specchat in the repository's own `.venv`, with the standard library only.

`start` and `fast` are what every call runs, `stages` what the first call runs, `checks` what
`scripts/test` runs. Nothing here is part of the installed package; what `specchat doctor` must know
too is in `specchat.doctor.toolchains`.
"""
