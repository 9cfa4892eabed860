"""What every table is made of: the metadata with its naming rule, and columns with their units.

SQLite has no column comments: there they stand in the table's own SQL, where `.schema` shows them.
"""

from typing import Any

from sqlalchemy import BigInteger, Column, Dialect, Double, ForeignKey, MetaData
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeDecorator, TypeEngine

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Kind = type[TypeEngine[Any]] | TypeEngine[Any]


class Amount(TypeDecorator[float]):
    """Parameters or tokens: whole for runs of ours, as they were given for imported ones; whole ones come back whole.

    SQLite's whole-number columns hold a fraction as it is, PostgreSQL's would round it.
    """

    impl = Double
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return a 64-bit integer for SQLite, double precision for others."""
        return dialect.type_descriptor(BigInteger() if dialect.name == "sqlite" else Double())

    def process_result_value(self, value: float | None, dialect: Dialect) -> float | None:
        """Return a whole number as int, another as it is."""
        return value if value is None or value % 1 else int(value)


@compiles(CreateColumn, "sqlite")
def column_with_comment(element: CreateColumn, compiler: Any, **options: Any) -> str:
    """Write a column of CREATE TABLE with its comment behind it."""
    sql, comment = compiler.visit_create_column(element, **options), element.element.comment
    return f"{sql} /* {comment.replace('*/', '* /')} */" if sql and comment else str(sql)


def must(name: str, kind: Kind, comment: str, *, primary: bool = False) -> Column[Any]:
    """Make a column that is never NULL."""
    return Column(name, kind, primary_key=primary, nullable=False, comment=comment)


def may(name: str, kind: Kind, comment: str) -> Column[Any]:
    """Make a column that is NULL where the value is not known or was not measured."""
    return Column(name, kind, nullable=True, comment=comment)


def planned(name: str, kind: Kind, comment: str, *, key: str = "", fitted: bool = False) -> Column[Any]:
    """Make a column that holds what was planned for a run under `key`, by default the column's name; NULL without it.

    Rows and the view all_runs take it in by itself, final_losses where it is `fitted`.
    """
    return Column(name, kind, nullable=True, comment=comment, info={"planned": key or name, "fitted": fitted})


def part_of_key(name: str, kind: Kind, comment: str) -> Column[Any]:
    """Make a whole-number column of a key, which the database must not number by itself."""
    return Column(name, kind, primary_key=True, autoincrement=False, comment=comment)


def refers(
    name: str, kind: Kind, target: str, comment: str, *, primary: bool = False, optional: bool = False
) -> Column[Any]:
    """Make a column that holds the key of another table."""
    return Column(name, kind, ForeignKey(target), primary_key=primary, nullable=optional, comment=comment)
