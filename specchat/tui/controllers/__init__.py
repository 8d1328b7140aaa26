"""The chat's controllers: they hold its state and import neither widgets nor Textual.

`chat_state.py` makes them. A turn passes through these files, from Enter to text on the screen:

 1. `widgets/composer.py` posts the text;
 2. `app.py` passes it to
 3. `controllers/questions.py`, which reads the attached files with
 4. `mentions.py`, stores the question through
 5. `controllers/conversations.py` and
 6. `chat/store.py`, and has it answered by
 7. `controllers/answers.py`, which asks through
 8. `controllers/session.py`, which submits a ticket of `sharing/tickets.py` to
 9. `sharing/shared_engine.py`, whose thread owns the engine. Each `Update` that comes from
10. `sharing/process_engine.py` goes into the ticket, the app is told, and calls 7, which takes it.
11. `controllers/writing.py` collects the steps, and
12. `widgets/message_views.py` shows them as
13. `markdown/prose.py`, which splits the text with
14. `markdown/growing_text.py` and sets it with
15. `markdown/typesetter.py`.
"""
