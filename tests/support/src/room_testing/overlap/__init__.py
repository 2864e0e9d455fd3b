"""The overlap checker: rooms, runners and outbound under random faults, and a history that is checked afterwards."""
