"""How the schema came to be, one file a version; applied by db.upgrade alone."""
