"""Tables of what is to be trained: experiments, runs, submissions. Planned numbers only."""

from sqlalchemy import BigInteger, Boolean, Double, Index, Integer, Table, Text, UniqueConstraint

from scalewright.db.columns import METADATA, Amount, may, must, planned, refers

experiments = Table(
    "experiments",
    METADATA,
    must("experiment_id", Integer, "number of the experiment in this database", primary=True),
    must("name", Text, "name in the YAML file"),
    may("revision_id", Integer, "the revision that is planned now"),
    must("created_at", Double, "s since 1970, UTC"),
    UniqueConstraint("name"),
    comment="named grids",
)

experiment_revisions = Table(
    "experiment_revisions",
    METADATA,
    must("revision_id", Integer, "number of the revision in this database", primary=True),
    refers("experiment_id", Integer, "experiments.experiment_id", "the experiment"),
    must("content_hash", Text, "SHA-256 of the text, hex"),
    must("text", Text, "the YAML as planned, or how points were imported"),
    must("created_at", Double, "s since 1970, UTC"),
    UniqueConstraint("experiment_id", "content_hash"),
    comment="each text of an experiment that was planned",
)

submissions = Table(
    "submissions",
    METADATA,
    must("submission_id", Text, "name of the folder under jobs/", primary=True),
    must("executor", Text, "local, slurm or debug"),
    may("snapshot", Text, "folder of the code snapshot"),
    must("created_at", Double, "s since 1970, UTC"),
    comment="each time that runs were handed to an executor",
)

jobs = Table(
    "jobs",
    METADATA,
    refers("submission_id", Text, "submissions.submission_id", "the submission", primary=True),
    must("job_id", Text, "id that the scheduler gave, array task included", primary=True),
    may("cluster", Text, "name of the cluster"),
    may("job_dir", Text, "folder of the pack"),
    comment="jobs of a submission",
)

runs = Table(
    "runs",
    METADATA,
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
    planned("n_params", Amount, "parameters without embedding and head", key="n_params_non_embedding", fitted=True),
    planned("n_params_total", Amount, "all parameters", fitted=True),
    planned("n_params_embedding", BigInteger, "parameters of the embedding"),
    planned("n_params_head", BigInteger, "parameters of the head", fitted=True),
    may("n_tokens_planned", Amount, "training tokens planned"),
    planned("n_steps_planned", BigInteger, "optimiser steps planned", key="n_steps"),
    may("batch_tokens", Amount, "tokens in an optimiser step"),
    planned(
        "unique_tokens",
        Amount,
        "different training tokens planned; below n_tokens_planned where data repeat",
        fitted=True,
    ),
    planned("flops_per_token", Double, "FLOPs a training token, forward and backward, under flop_convention"),
    planned("flop_convention", Text, "how FLOPs are counted"),
    planned("flops_planned", Double, "FLOPs planned", key="flops_total"),
    planned("wall_s_planned", Double, "seconds planned", key="wall_s"),
    planned("memory_bytes_planned", BigInteger, "peak memory planned, bytes", key="memory_bytes"),
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
    Index(None, "state"),
    Index(None, "method"),
    comment="what is or was to be trained, by identity; planned numbers only",
)

experiment_runs = Table(
    "experiment_runs",
    METADATA,
    refers("experiment_id", Integer, "experiments.experiment_id", "the experiment", primary=True),
    refers("run", Integer, "runs.run", "the run", primary=True),
    must("first_revision_id", Integer, "first revision of the experiment that contains the run"),
    must("last_revision_id", Integer, "last revision of the experiment that contains the run"),
    must("label", Text, "name that figures show"),
    may("size", Text, "name of the size"),
    may("budget", Text, "token budget as written"),
    may("run_group", Text, "group of the grid"),
    must("holdout", Boolean, "left out of fits, to be predicted"),
    Index(None, "run"),
    comment="which runs an experiment contains, and under which names",
)
