"""Numbers into words, tables, figures and pages."""
