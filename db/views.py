"""Views for the questions that people ask of the database, in SQL that SQLite and PostgreSQL share.

They are dropped and made again at every upgrade, so that no migration has to know them.
"""

from sqlalchemy import Connection, text

from scalewright.db.schema import runs

PLANNED = ", ".join(f"r.{column.name}" for column in runs.c if "planned" in column.info)
FITTED = ", ".join(f"r.{column.name}" for column in runs.c if column.info.get("fitted"))

IN_PLAN = """
FROM experiment_runs x
JOIN experiments e ON e.experiment_id = x.experiment_id AND e.revision_id = x.last_revision_id
JOIN runs r ON r.run = x.run
LEFT JOIN results s ON s.run = r.run"""

VIEWS = {
    # One row a run, of every experiment and of none: planned and measured numbers side by side.
    "all_runs": f"""
SELECT r.run_id, r.source, r.state, r.state_reason, r.method, r.gate, r.init, r.width, r.depth, r.heads, r.vocab_size,
       r.context, {PLANNED}, r.n_tokens_planned,
       s.last_tokens AS n_tokens, r.batch_tokens, s.last_step AS step,
       s.last_tokens * r.flops_per_token AS flops, s.loss_nats, s.bits_per_byte,
       s.validation_loss_nats, s.train_loss_nats, coalesce(s.annealed, false) AS annealed,
       coalesce(s.diverged, false) AS diverged, r.lr_peak, r.seed, r.precision, r.optimizer, r.weight_decay, r.schedule,
       r.parent_run_id, r.parent_tokens, s.tokens_per_s, s.wall_s, s.train_wall_s, s.device, s.threads,
       coalesce(s.n_attempts, 0) AS n_attempts, s.last_seen_at, r.created_at, r.submission_id
FROM runs r LEFT JOIN results s ON s.run = r.run""",
    # One row a run of an experiment as it is planned now; losses in nats a token, times in seconds.
    "final_losses": f"""
SELECT r.run_id, e.name AS experiment, r.source, r.method, r.gate, x.label, r.init, x.size, x.budget, x.run_group,
       r.width, r.depth, r.heads, {FITTED}, s.n_tokens,
       CASE WHEN r.source = 'import' THEN coalesce(s.n_tokens * r.flops_per_token, r.flops_planned)
            ELSE s.n_tokens * r.flops_per_token END AS flops,
       CAST(6 AS DOUBLE PRECISION) * r.n_params * s.n_tokens AS flops_6n,
       s.loss_nats, s.bits_per_byte, r.seed, r.lr_peak, r.batch_tokens, r.precision,
       coalesce(s.annealed, false) AS annealed, r.state, coalesce(s.diverged, false) AS diverged, x.holdout,
       s.tokens_per_s, s.wall_s, s.train_wall_s, s.device, s.threads, s.step
{IN_PLAN}""",
    # One row a run of an experiment as it is planned now: how far it is and how long it may still take (seconds).
    "progress": f"""
SELECT r.run_id, e.name AS experiment, x.label, x.size, x.budget, r.n_params, r.state, r.state_reason,
       coalesce(s.last_step, 0) AS step, r.n_steps_planned, coalesce(s.last_tokens, 0) AS n_tokens, r.n_tokens_planned,
       s.train_loss_nats, coalesce(s.loss_nats, s.validation_loss_nats) AS validation_loss_nats, s.tokens_per_s,
       CASE WHEN r.state IN ('completed', 'diverged', 'cancelled') THEN 0
            WHEN s.tokens_per_s > 0 THEN (r.n_tokens_planned - coalesce(s.last_tokens, 0)) / s.tokens_per_s
            ELSE r.wall_s_planned END AS left_s,
       coalesce(s.n_attempts, 0) AS n_attempts, s.last_seen_at, s.wall_s, r.wall_s_planned
{IN_PLAN}""",
    # One row a run: what was planned and what was spent (seconds, FLOPs, tokens).
    "cost": """
SELECT r.run_id, r.method, r.gate, r.state, r.n_params, r.wall_s_planned, s.wall_s, s.train_wall_s, s.tokens_per_s,
       r.n_tokens_planned, s.last_tokens AS n_tokens, r.flops_planned, s.last_tokens * r.flops_per_token AS flops,
       s.device, s.threads, coalesce(s.n_attempts, 0) AS n_attempts
FROM runs r LEFT JOIN results s ON s.run = r.run WHERE r.source = 'run'""",
    # One row an attempt whose work was partly done again: tokens and seconds that bought nothing.
    "waste": """
SELECT r.run_id, r.method, a.attempt, a.outcome, a.reason, a.host, a.job_id, a.last_tokens, a.cut_tokens,
       CASE WHEN a.last_tokens > a.cut_tokens THEN a.last_tokens - a.cut_tokens ELSE 0 END AS tokens_lost,
       CASE WHEN a.last_tokens > a.cut_tokens AND a.tokens_per_s > 0
            THEN (a.last_tokens - a.cut_tokens) / a.tokens_per_s ELSE 0 END AS seconds_lost
FROM attempts a JOIN runs r ON r.run = a.run WHERE a.cut_step IS NOT NULL""",
    # Every training scalar by name.
    "curves": """
SELECT r.run_id, r.method, k.name AS metric, k.unit, m.step, m.step * r.batch_tokens AS n_tokens, m.value
FROM metrics m JOIN metric_keys k ON k.key = m.key JOIN runs r ON r.run = m.run""",
    # Every quantity of a layer by name.
    "layer_curves": """
SELECT r.run_id, r.method, k.name AS metric, k.unit, m.layer, m.step, m.step * r.batch_tokens AS n_tokens, m.value
FROM layer_metrics m JOIN metric_keys k ON k.key = m.key JOIN runs r ON r.run = m.run""",
}


def drop_views(connection: Connection) -> None:
    """Drop all views, those that read others first."""
    for name in reversed(VIEWS):
        connection.execute(text(f"DROP VIEW IF EXISTS {name}"))


def create_views(connection: Connection) -> None:
    """Make every view; they must not exist."""
    for name in VIEWS:
        connection.execute(text(_statement(name)))


def are_views_of_this_code(connection: Connection) -> bool:
    """Tell whether a SQLite database has these very views; those of an earlier version may lack a column."""
    stored = connection.execute(text("SELECT sql FROM sqlite_master WHERE type = 'view'")).scalars().all()
    return {_statement(name) for name in VIEWS} <= set(stored)


def _statement(name: str) -> str:
    return f"CREATE VIEW {name} AS {VIEWS[name].strip()}"
