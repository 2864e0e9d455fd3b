"""The rehearsal model: an OpenAI-compatible server with scripted answers. It is no language model, and says so."""
