"""A page on this machine that follows experiments while they run. Reads only; knows no job."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # what only this machine can reach: no token is asked for
