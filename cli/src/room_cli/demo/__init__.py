"""``room demo``: real processes, webhooks in real shapes, and a timeline of what becomes of each."""
