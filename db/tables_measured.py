"""Tables of what jobs wrote: attempts, metrics, evaluations, checkpoints, results, and how far journals were read."""

from sqlalchemy import BigInteger, Boolean, Double, Integer, Table, Text, UniqueConstraint

from scalewright.db.columns import METADATA, Amount, may, must, part_of_key, refers

codes = Table(
    "codes",
    METADATA,
    must("code_id", Integer, "number of the code in this database", primary=True),
    must("content_hash", Text, "SHA-256 of the content, hex"),
    may("code_commit", Text, "commit of the repository"),
    may("dirty", Boolean, "whether files differed from the commit"),
    may("snapshot", Text, "folder of the code snapshot"),
    must("content", Text, "JSON as the job wrote it"),
    UniqueConstraint("content_hash"),
    comment="code that attempts ran",
)

environments = Table(
    "environments",
    METADATA,
    must("environment_id", Integer, "number of the environment in this database", primary=True),
    must("content_hash", Text, "SHA-256 of the content, hex"),
    may("device", Text, "cpu, or the name of the accelerator"),
    may("threads", BigInteger, "threads of a process"),
    may("cpu", Text, "model of the processor"),
    may("python", Text, "version"),
    may("torch", Text, "version"),
    may("lightning", Text, "version"),
    must("content", Text, "JSON as the job wrote it"),
    UniqueConstraint("content_hash"),
    comment="machines and library versions that attempts ran on",
)

attempts = Table(
    "attempts",
    METADATA,
    refers("run", Integer, "runs.run", "the run", primary=True),
    part_of_key("attempt", Integer, "1 for the first process that worked on the run, 2 for the next, ..."),
    may("token", Text, "fencing token"),
    may("host", Text, "host name"),
    may("pid", BigInteger, "process id on the host"),
    may("cluster", Text, "name of the cluster"),
    may("job_id", Text, "id that the scheduler gave"),
    may("restart", BigInteger, "restart count of the scheduler"),
    may("array_task", BigInteger, "task in a job array"),
    refers("code_id", Integer, "codes.code_id", "code", optional=True),
    refers("environment_id", Integer, "environments.environment_id", "machine and libraries", optional=True),
    may("started_at", Double, "s since 1970, UTC"),
    may("last_seen_at", Double, "time of the newest record, s since 1970, UTC"),
    may("ended_at", Double, "s since 1970, UTC; NULL while it runs or if it was killed"),
    may("outcome", Text, "completed, diverged, stopped, preempted, failed or fenced; NULL without an end record"),
    may("reason", Text, "why it ended"),
    may("error", Text, "the error, where one ended it"),
    may("resume_step", BigInteger, "step that it started from"),
    may("resume_tokens", BigInteger, "tokens that it started from"),
    may("cut_step", BigInteger, "a later attempt started again from here: rows past this step are dropped"),
    may("cut_tokens", BigInteger, "tokens at cut_step"),
    may("last_step", BigInteger, "newest step seen"),
    may("last_tokens", BigInteger, "tokens at last_step"),
    may("train_loss_nats", Double, "newest training loss, nats a token"),
    may("tokens_per_s", Double, "newest throughput, tokens a second"),
    may("wall_s", Double, "from its first to its newest record, s"),
    may("train_wall_s", Double, "wall time that the run has spent in training steps so far, s"),
    comment="one process working on a run",
)

metric_keys = Table(
    "metric_keys",
    METADATA,
    must("key", Integer, "number of the metric in this database", primary=True),
    must("name", Text, "name in the journal"),
    may("unit", Text, "unit of the value"),
    may("direction", Text, "lower or higher is better; NULL where neither is"),
    UniqueConstraint("name"),
    comment="names, units and directions of metrics",
)

metrics = Table(
    "metrics",
    METADATA,
    part_of_key("run", Integer, "the run"),
    part_of_key("key", Integer, "the metric"),
    part_of_key("step", BigInteger, "optimiser step"),
    may("value", Double, "in the metric's unit; NULL is NaN"),
    sqlite_with_rowid=False,
    comment="training scalars; the view curves has names instead of numbers",
)

layer_metrics = Table(
    "layer_metrics",
    METADATA,
    part_of_key("run", Integer, "the run"),
    part_of_key("key", Integer, "the metric"),
    part_of_key("step", BigInteger, "optimiser step"),
    part_of_key("layer", Integer, "layer, from 0"),
    may("value", Double, "in the metric's unit; NULL is NaN"),
    sqlite_with_rowid=False,
    comment="quantities that each layer has",
)

evaluations = Table(
    "evaluations",
    METADATA,
    refers("run", Integer, "runs.run", "the run", primary=True),
    must("split", Text, "validation, or the name of another fixed set", primary=True),
    part_of_key("step", BigInteger, "optimiser step"),
    may("n_tokens", Amount, "training tokens seen"),
    may("loss_nats", Double, "nats a token"),
    may("bits_per_byte", Double, "bits a byte of text"),
    may("n_tokens_evaluated", BigInteger, "tokens that the loss is a mean of"),
    must("final", Boolean, "at the end of the run"),
    must("annealed", Boolean, "the learning rate had come down to its end"),
    must("attempt", Integer, "attempt that measured it"),
    may("time", Double, "s since 1970, UTC"),
    comment="losses on fixed sets",
)

checkpoints = Table(
    "checkpoints",
    METADATA,
    refers("run", Integer, "runs.run", "the run", primary=True),
    part_of_key("step", BigInteger, "optimiser step"),
    may("n_tokens", BigInteger, "training tokens seen"),
    must("path", Text, "relative to the run directory"),
    may("bytes", BigInteger, "size, bytes"),
    must("attempt", Integer, "attempt that wrote it"),
    may("time", Double, "s since 1970, UTC"),
    comment="checkpoints as they were written; older files are deleted by the job",
)

results = Table(
    "results",
    METADATA,
    refers("run", Integer, "runs.run", "the run", primary=True),
    may("step", BigInteger, "optimiser step of the final loss"),
    may("n_tokens", Amount, "training tokens seen at the final loss"),
    may("loss_nats", Double, "final validation loss, nats a token; NULL until the run has ended"),
    may("bits_per_byte", Double, "final validation loss, bits a byte of text"),
    must("annealed", Boolean, "the learning rate had come down to its end at the final loss"),
    must("diverged", Boolean, "the run ended because its loss diverged"),
    may("wall_s", Double, "wall time, all attempts, s"),
    may("train_wall_s", Double, "wall time in training steps, all attempts, s"),
    may("tokens_per_s", Double, "throughput, tokens a second"),
    may("device", Text, "cpu, or the name of the accelerator, of the newest attempt"),
    may("threads", BigInteger, "threads of the newest attempt"),
    must("n_attempts", Integer, "attempts so far"),
    may("last_step", BigInteger, "newest step seen"),
    may("last_tokens", Amount, "tokens at last_step"),
    may("last_seen_at", Double, "time of the newest record, s since 1970, UTC"),
    may("train_loss_nats", Double, "newest training loss, nats a token"),
    may("validation_loss_nats", Double, "newest validation loss, nats a token"),
    may("done", Text, "JSON: DONE.json as the job wrote it"),
    must("is_whole", Boolean, "the run has ended and everything of it is in the database"),
    comment="what was measured, one row a run",
)

ingested_files = Table(
    "ingested_files",
    METADATA,
    refers("run", Integer, "runs.run", "the run", primary=True),
    part_of_key("attempt", Integer, "attempt whose journal it is"),
    must("n_bytes", BigInteger, "bytes read, always whole lines"),
    must("n_lines", BigInteger, "lines read"),
    comment="how far each journal was read",
)

ingest_errors = Table(
    "ingest_errors",
    METADATA,
    must("run_id", Text, "name of the run directory", primary=True),
    must("file", Text, "name of the file", primary=True),
    part_of_key("offset", BigInteger, "where the line starts, bytes"),
    must("message", Text, "what is wrong with it"),
    must("excerpt", Text, "how it begins"),
    comment="lines and files that could not be read; they are passed over",
)
