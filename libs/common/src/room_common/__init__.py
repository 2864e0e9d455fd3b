"""What the services of Room share: contracts, Kafka, PostgreSQL, telemetry, models."""
