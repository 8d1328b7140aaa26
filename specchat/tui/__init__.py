"""The chat: a Textual application. Only this package imports Textual."""

import os

# A keystroke appears on the second screen update after it, because the answer being streamed is
# drawn first: up to 60 ms later at Textual's default of 60 updates a second, 40 ms at 120.
os.environ.setdefault("TEXTUAL_FPS", "120")
