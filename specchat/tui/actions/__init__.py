"""What the chat's commands do, in groups. Each group acts on the view and on some controllers.

The app passes them in when it composes the chat; a group knows neither the app nor Textual.
"""
