"""Kafka: the one producer, the executor, batches and topic administration."""
