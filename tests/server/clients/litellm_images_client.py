"""Shows `cat.png` of the current folder by LiteLLM: python litellm_images_client.py ADDRESS."""

import base64
import os
import sys
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks for prices on import

import litellm

litellm.suppress_debug_info = True
ADDRESS = sys.argv[1]
DATA = base64.b64encode(Path("cat.png").read_bytes()).decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
QUESTION: Any = [{"role": "user", "content": [IMAGE, {"type": "text", "text": "What is this?"}]}]

texts = set[str]()
for provider in ("openai", "hosted_vllm", "anthropic"):
    base = ADDRESS if provider == "anthropic" else f"{ADDRESS}/v1"
    found = litellm.completion(
        model=f"{provider}/seer", messages=QUESTION, api_base=base, api_key="no-key-needed",
        temperature=0, max_tokens=12, num_retries=0,
    )  # fmt: skip
    texts.add(found.choices[0].message.content)
    assert found.usage.prompt_tokens > 64
assert len(texts) == 1, texts
print("done")
