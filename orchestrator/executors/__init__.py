"""Where jobs run: on this machine, on SLURM, or in this process. Knows submitit and SLURM's commands, no database."""
