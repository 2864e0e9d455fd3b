"""Topics, envelopes and messages: what is promised between processes."""
