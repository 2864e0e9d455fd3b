"""Pure rules of ingest: no clock, no network, no client library."""
