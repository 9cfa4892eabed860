"""How the schema came to be, one file a version; applied by scalewright.db.upgrade alone."""
