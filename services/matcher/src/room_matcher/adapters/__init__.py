"""What the matcher's handlers stand on: the cached look-up, the place in front of the cap, the ledger's writer."""
