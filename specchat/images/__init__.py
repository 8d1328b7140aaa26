"""Images of requests, and how untrusted bytes become pixels. Knows neither models nor prompts."""
