"""What the chart knows of the code: its schema and the file that maps values to variables."""
