"""The API of the operator."""
