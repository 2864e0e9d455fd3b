"""Receives webhooks and replies, and makes each one durable in Kafka."""
