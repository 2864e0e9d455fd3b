"""The panel's pages, by what they show."""
