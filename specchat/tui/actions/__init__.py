"""What the commands of the chat do, in groups: each acts on the view and the controllers it names.

A group is given them by the app, which composes the chat; it knows neither the app nor Textual.
"""
