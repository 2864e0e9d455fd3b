"""Ages the activity log and deletes what is old."""
