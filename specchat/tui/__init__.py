"""The chat: a Textual application. Only this package imports Textual."""

import os

# A key shows at the next update of the screen but one, behind what of an answer is drawn meanwhile:
# 60 ms later at worst with the 60 updates a second that Textual is content with, 40 with 120.
os.environ.setdefault("TEXTUAL_FPS", "120")
