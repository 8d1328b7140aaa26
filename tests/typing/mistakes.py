"""What no caller may write: a type checker reports every line that ends in a comment."""

from __future__ import annotations

from specchat import Engine

engine = Engine.load("target.gguf")
Engine.load()  # call-arg
Engine.load("target.gguf", contxt=4096)  # call-arg
Engine.load("target.gguf", ctx="long")  # arg-type
Engine.load("target.gguf", process=1)  # arg-type
Engine.load("target.gguf", flash_attention="maybe")  # arg-type
Engine.load("target.gguf", on_progress="stderr")  # arg-type
Engine.load(b"target.gguf")  # arg-type
engine.generate("Once", temprature=1.0)  # call-arg
engine.generate("Once", temperature="hot")  # arg-type
engine.generate("Once", draft_length="many")  # arg-type
engine.generate("Once", top_k=None)  # arg-type
engine.generate(3)  # arg-type
engine.chat("Hi")  # arg-type
engine.chat([{"role": "user", "content": "Hi"}], ctx=1)  # call-arg
