"""How jobs are carried out: one module for each name of EXECUTORS (config/resources.py), with its one object."""
