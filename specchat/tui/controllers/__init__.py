"""The chat's controllers: they hold its state and import neither widgets nor Textual.

A turn passes through these files, from Enter to text on the screen:

 1. `widgets/composer.py` posts the text;
 2. `app.py` passes it to
 3. `controllers/answers.py`, which reads the attached files with
 4. `mentions.py`, stores the question through
 5. `controllers/conversations.py` and
 6. `chat/store.py`, and asks the engine through
 7. `controllers/session.py`, whose thread reads the steps of the answer from
 8. `engine/process_engine.py` and announces them to the app, which calls 3 again. There
 9. `controllers/writing.py` collects them, and
10. `widgets/message_views.py` shows them as
11. `widgets/prose.py`, which splits the text with
12. `widgets/growing_text.py` and sets it with
13. `widgets/typesetter.py`.
"""
