"""Language models: the port and the OpenAI adapter."""
