"""Pure rules of delivery."""
