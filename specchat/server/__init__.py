"""`specchat serve`: the HTTP APIs of OpenAI and Anthropic over one loaded pair."""
