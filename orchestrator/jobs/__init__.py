"""How runs reach a machine and what becomes of them: packing, submission, the job itself, what the cluster says."""
