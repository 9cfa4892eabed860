"""A page on this machine that follows experiments while they run. Reads only; knows no job."""
