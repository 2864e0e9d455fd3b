"""Pure rules of the operator's API."""
