"""The web panel: pages rendered here, brought up to date with htmx, on the API's port under /panel."""
