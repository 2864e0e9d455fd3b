"""PostgreSQL: the pool, migrations and every statement."""
