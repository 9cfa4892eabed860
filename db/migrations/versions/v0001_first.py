"""Make the first schema: experiments, runs, what jobs wrote, fits and figures."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Double, Integer, Text, UniqueConstraint

from scalewright.db.columns import may, must, part_of_key, refers

revision = "0001"
down_revision = None


def upgrade() -> None:
    make_planned()
    make_measured()
    make_kept()


def make_planned() -> None:
    op.create_table(
        "experiments",
        must("experiment_id", Integer, "number of the experiment in this database", primary=True),
        must("name", Text, "name in the YAML file"),
        may("revision_id", Integer, "the revision that is planned now"),
        must("created_at", Double, "s since 1970, UTC"),
        UniqueConstraint("name"),
        comment="named grids",
    )
    op.create_table(
        "experiment_revisions",
        must("revision_id", Integer, "number of the revision in this database", primary=True),
        refers("experiment_id", Integer, "experiments.experiment_id", "the experiment"),
        must("content_hash", Text, "SHA-256 of the text, hex"),
        must("text", Text, "the YAML as planned, or how points were imported"),
        must("created_at", Double, "s since 1970, UTC"),
        UniqueConstraint("experiment_id", "content_hash"),
        comment="each text of an experiment that was planned",
    )
    op.create_table(
        "submissions",
        must("submission_id", Text, "name of the folder under jobs/", primary=True),
        must("executor", Text, "local, slurm or debug"),
        may("snapshot", Text, "folder of the code snapshot"),
        must("created_at", Double, "s since 1970, UTC"),
        comment="each time that runs were handed to an executor",
    )
    op.create_table(
        "jobs",
        refers("submission_id", Text, "submissions.submission_id", "the submission", primary=True),
        must("job_id", Text, "id that the scheduler gave, array task included", primary=True),
        may("cluster", Text, "name of the cluster"),
        may("job_dir", Text, "folder of the pack"),
        comment="jobs of a submission",
    )
    op.create_table(
        "runs",
        must("run", Integer, "number of the run in this database; joins metrics, attempts, evaluations", primary=True),
        must("run_id", Text, "first 16 hex digits of the SHA-256 of the spec"),
        must("source", Text, "run: trained here; import: points that somebody else measured"),
        must("state", Text, "planned, claimed, queued, running, completed, diverged, interrupted, failed, ..."),
        may("state_reason", Text, "why the run is in this state"),
        must("state_at", Double, "when it came into this state, s since 1970, UTC"),
        must("method", Text, "method of the model"),
        must("gate", Text, "what scales the stream after a sub-layer; none where nothing does"),
        may("init", Text, "initialisation"),
        may("width", Integer, "residual stream, channels"),
        may("depth", Integer, "layers"),
        may("heads", Integer, "attention heads"),
        may("vocab_size", Integer, "tokens in the vocabulary"),
        may("context", Integer, "tokens in a sequence"),
        may("n_params", BigInteger, "parameters without embedding and head"),
        may("n_params_total", BigInteger, "all parameters"),
        may("n_params_embedding", BigInteger, "parameters of the embedding"),
        may("n_params_head", BigInteger, "parameters of the head"),
        may("n_tokens_planned", BigInteger, "training tokens planned"),
        may("n_steps_planned", BigInteger, "optimiser steps planned"),
        may("batch_tokens", BigInteger, "tokens in an optimiser step"),
        may("flops_per_token", Double, "FLOPs a training token, forward and backward, under flop_convention"),
        may("flop_convention", Text, "how FLOPs are counted"),
        may("flops_planned", Double, "FLOPs planned"),
        may("wall_s_planned", Double, "seconds planned"),
        may("memory_bytes_planned", BigInteger, "peak memory planned, bytes"),
        may("seed", BigInteger, "root seed"),
        may("precision", Text, "fp32, bf16-mixed, ..."),
        may("optimizer", Text, "name of the optimiser"),
        may("lr_peak", Double, "peak learning rate"),
        may("weight_decay", Double, "weight decay"),
        may("schedule", Text, "name of the learning-rate schedule"),
        may("data_fingerprint", Text, "hash of corpus and tokenizer"),
        may("parent_run_id", Text, "trunk that this run branches from"),
        may("parent_tokens", BigInteger, "tokens of the trunk at the branch"),
        must("spec", Text, "JSON: everything that determines the result, defaults included"),
        must("settings", Text, "JSON: how the run is carried out"),
        must("planned", Text, "JSON: every number planned"),
        may("submission_id", Text, "the submission that claimed the run last"),
        must("created_at", Double, "s since 1970, UTC"),
        UniqueConstraint("run_id"),
        comment="what is or was to be trained, by identity; planned numbers only",
    )
    op.create_index("ix_runs_method", "runs", ["method"])
    op.create_index("ix_runs_state", "runs", ["state"])
    op.create_table(
        "experiment_runs",
        refers("experiment_id", Integer, "experiments.experiment_id", "the experiment", primary=True),
        refers("run", Integer, "runs.run", "the run", primary=True),
        must("first_revision_id", Integer, "first revision of the experiment that contains the run"),
        must("last_revision_id", Integer, "last revision of the experiment that contains the run"),
        must("label", Text, "name that figures show"),
        may("size", Text, "name of the size"),
        may("budget", Text, "token budget as written"),
        may("run_group", Text, "group of the grid"),
        must("holdout", Boolean, "left out of fits, to be predicted"),
        comment="which runs an experiment contains, and under which names",
    )
    op.create_index("ix_experiment_runs_run", "experiment_runs", ["run"])


def make_measured() -> None:
    op.create_table(
        "codes",
        must("code_id", Integer, "number of the code in this database", primary=True),
        must("content_hash", Text, "SHA-256 of the content, hex"),
        may("code_commit", Text, "commit of the repository"),
        may("dirty", Boolean, "whether files differed from the commit"),
        may("snapshot", Text, "folder of the code snapshot"),
        must("content", Text, "JSON as the job wrote it"),
        UniqueConstraint("content_hash"),
        comment="code that attempts ran",
    )
    op.create_table(
        "environments",
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
    op.create_table(
        "attempts",
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
    op.create_table(
        "metric_keys",
        must("key", Integer, "number of the metric in this database", primary=True),
        must("name", Text, "name in the journal"),
        may("unit", Text, "unit of the value"),
        may("direction", Text, "lower or higher is better; NULL where neither is"),
        UniqueConstraint("name"),
        comment="names, units and directions of metrics",
    )
    op.create_table(
        "metrics",
        part_of_key("run", Integer, "the run"),
        part_of_key("key", Integer, "the metric"),
        part_of_key("step", BigInteger, "optimiser step"),
        may("value", Double, "in the metric's unit; NULL is NaN"),
        sqlite_with_rowid=False,
        comment="training scalars; the view curves has names instead of numbers",
    )
    op.create_table(
        "layer_metrics",
        part_of_key("run", Integer, "the run"),
        part_of_key("key", Integer, "the metric"),
        part_of_key("step", BigInteger, "optimiser step"),
        part_of_key("layer", Integer, "layer, from 0"),
        may("value", Double, "in the metric's unit; NULL is NaN"),
        sqlite_with_rowid=False,
        comment="quantities that each layer has",
    )
    op.create_table(
        "evaluations",
        refers("run", Integer, "runs.run", "the run", primary=True),
        must("split", Text, "validation, or the name of another fixed set", primary=True),
        part_of_key("step", BigInteger, "optimiser step"),
        may("n_tokens", BigInteger, "training tokens seen"),
        may("loss_nats", Double, "nats a token"),
        may("bits_per_byte", Double, "bits a byte of text"),
        may("n_tokens_evaluated", BigInteger, "tokens that the loss is a mean of"),
        must("final", Boolean, "at the end of the run"),
        must("annealed", Boolean, "the learning rate had come down to its end"),
        must("attempt", Integer, "attempt that measured it"),
        may("time", Double, "s since 1970, UTC"),
        comment="losses on fixed sets",
    )
    op.create_table(
        "checkpoints",
        refers("run", Integer, "runs.run", "the run", primary=True),
        part_of_key("step", BigInteger, "optimiser step"),
        may("n_tokens", BigInteger, "training tokens seen"),
        must("path", Text, "relative to the run directory"),
        may("bytes", BigInteger, "size, bytes"),
        must("attempt", Integer, "attempt that wrote it"),
        may("time", Double, "s since 1970, UTC"),
        comment="checkpoints as they were written; older files are deleted by the job",
    )
    op.create_table(
        "results",
        refers("run", Integer, "runs.run", "the run", primary=True),
        may("step", BigInteger, "optimiser step of the final loss"),
        may("n_tokens", BigInteger, "training tokens seen at the final loss"),
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
        may("last_tokens", BigInteger, "tokens at last_step"),
        may("last_seen_at", Double, "time of the newest record, s since 1970, UTC"),
        may("train_loss_nats", Double, "newest training loss, nats a token"),
        may("validation_loss_nats", Double, "newest validation loss, nats a token"),
        may("done", Text, "JSON: DONE.json as the job wrote it"),
        must("is_whole", Boolean, "the run has ended and everything of it is in the database"),
        comment="what was measured, one row a run",
    )
    op.create_table(
        "ingested_files",
        refers("run", Integer, "runs.run", "the run", primary=True),
        part_of_key("attempt", Integer, "attempt whose journal it is"),
        must("n_bytes", BigInteger, "bytes read, always whole lines"),
        must("n_lines", BigInteger, "lines read"),
        comment="how far each journal was read",
    )
    op.create_table(
        "ingest_errors",
        must("run_id", Text, "name of the run directory", primary=True),
        must("file", Text, "name of the file", primary=True),
        part_of_key("offset", BigInteger, "where the line starts, bytes"),
        must("message", Text, "what is wrong with it"),
        must("excerpt", Text, "how it begins"),
        comment="lines and files that could not be read; they are passed over",
    )


def make_kept() -> None:
    op.create_table(
        "events",
        must("event_id", Integer, "number of the event, ascending", primary=True),
        must("run_id", Text, "the run"),
        must("time", Double, "s since 1970, UTC"),
        may("state_before", Text, "state left"),
        must("state", Text, "state entered"),
        may("reason", Text, "why"),
        must("evidence", Text, "JSON: what was seen"),
        comment="every change of a run's state; rows are only added",
    )
    op.create_index("ix_events_run_id", "events", ["run_id"])
    op.create_table(
        "fits",
        must("fit_id", Text, "first 12 hex digits of the SHA-256 of record and runs", primary=True),
        may("experiment", Text, "name of the experiment"),
        may("label", Text, "method or group that was fitted"),
        must("law", Text, "functional form"),
        may("objective", Text, "what was minimised"),
        may("objective_value", Double, "the objective at the optimum"),
        may("n_points", Integer, "runs that entered"),
        must("record", Text, "JSON: parameters, intervals, certificate, options and versions"),
        must("created_at", Double, "s since 1970, UTC"),
        comment="fitted laws",
    )
    op.create_table(
        "fit_runs",
        refers("fit_id", Text, "fits.fit_id", "the fit", primary=True),
        must("run_id", Text, "the run", primary=True),
        must("entered", Boolean, "whether the run entered the fit"),
        may("reason", Text, "why it was left out"),
        comment="which runs entered a fit, and why others did not",
    )
    op.create_table(
        "figures",
        must("figure_id", Text, "first 12 hex digits of the SHA-256 of name, experiment and inputs", primary=True),
        must("name", Text, "name of the figure"),
        may("experiment", Text, "name of the experiment"),
        must("path", Text, "file that was written"),
        may("content_hash", Text, "SHA-256 of the file, hex"),
        must("created_at", Double, "s since 1970, UTC"),
        comment="figures as drawn last",
    )
    op.create_table(
        "figure_inputs",
        refers("figure_id", Text, "figures.figure_id", "the figure", primary=True),
        must("kind", Text, "frame, fit or run", primary=True),
        must("reference", Text, "what it was drawn from", primary=True),
        comment="what a figure was drawn from",
    )
    op.create_table(
        "tags",
        refers("run", Integer, "runs.run", "the run", primary=True),
        must("tag", Text, "one word of a person's choice", primary=True),
        comment="words that people put on runs",
    )
    op.create_table(
        "notes",
        must("note_id", Integer, "number of the note, ascending", primary=True),
        refers("run", Integer, "runs.run", "the run"),
        must("time", Double, "s since 1970, UTC"),
        must("text", Text, "what a person wrote"),
        comment="what people wrote about runs",
    )
    op.create_index("ix_notes_run", "notes", ["run"])
    op.create_table(
        "leases",
        must("name", Text, "what is leased", primary=True),
        must("owner", Text, "host, process and a random token"),
        must("expires_at", Double, "s since 1970, UTC"),
        comment="who may write results now",
    )
