"""Journals into the database, and points and tables in and out. The only writer of results."""
