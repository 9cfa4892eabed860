"""Migrations by version number."""
