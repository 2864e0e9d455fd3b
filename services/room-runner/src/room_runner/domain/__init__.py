"""The rules of a cycle, pure: time, ids and randomness are arguments."""
