"""The HTTP front door: OpenAI-compatible completions, feedback, keys, routing, metrics and the operator's routes."""
