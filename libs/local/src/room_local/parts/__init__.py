"""Real servers as child processes: PostgreSQL, Redis and a Kafka broker, without a container engine."""

from __future__ import annotations

from room_local.parts.kafka_apache import ApacheKafka
from room_local.parts.kafka_tansu import TansuBroker
from room_local.parts.postgres import Postgres
from room_local.parts.processes import PartFailed
from room_local.parts.redis import Redis
from room_local.parts.server import Server

__all__ = ["ApacheKafka", "PartFailed", "Postgres", "Redis", "Server", "TansuBroker"]
