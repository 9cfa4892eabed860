"""What every table is made of: the metadata with its naming rule, and columns with their units."""

from typing import Any

from sqlalchemy import Column, ForeignKey, MetaData
from sqlalchemy.types import TypeEngine

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def must(name: str, kind: type[TypeEngine[Any]], comment: str, *, primary: bool = False) -> Column[Any]:
    """Make a column that is never NULL."""
    return Column(name, kind, primary_key=primary, nullable=False, comment=comment)


def may(name: str, kind: type[TypeEngine[Any]], comment: str) -> Column[Any]:
    """Make a column that is NULL where the value is not known or was not measured."""
    return Column(name, kind, nullable=True, comment=comment)


def refers(name: str, target: str, comment: str, *, primary: bool = False, optional: bool = False) -> Column[Any]:
    """Make a column that holds the key of another table."""
    return Column(name, ForeignKey(target), primary_key=primary, nullable=optional, comment=comment)
