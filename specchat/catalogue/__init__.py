"""The pairs specchat knows by name, and where their files are."""
