"""Every option once: name, type, range or choices, default and help.

Flags, environment variables, the settings file, the chat's settings screen, presets, pairs in
models.toml and the Python API are all made from these declarations:

    for option in LoadOptions.fields():
        print(option.name, option.description, option.default, option.help)

A new option is one more field. It imports nothing of specchat but errors and the drafters' names.
"""
