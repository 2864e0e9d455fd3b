"""From a record to its recorded outcome."""
