"""Recording rules, alerts and dashboards of Room, written as code; what Prometheus and Grafana read is made from it."""
