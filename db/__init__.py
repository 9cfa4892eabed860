"""What is known: the runs database; SQLAlchemy, Alembic and pandas."""
