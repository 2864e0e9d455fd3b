"""Real servers as child processes: PostgreSQL, Redis and a Kafka broker, without a container engine.

Imports nothing: the command line asks for the state of a stack without loading database and Kafka clients.
"""
