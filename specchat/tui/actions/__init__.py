"""What the chat's commands and keys do, in groups, each of which acts on the view and the state.

`chat_actions.py` makes the groups, and has the table that says which method runs a command.
"""
