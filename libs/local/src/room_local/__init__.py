"""Room on one machine: the embedded stack, the rehearsal model and the local channel."""
