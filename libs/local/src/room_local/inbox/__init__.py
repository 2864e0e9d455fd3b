"""The local channel's far end: an inbox for the person at this machine."""
