"""Tables of what is known only here: state changes, fits, tags, notes, and who may write."""

from sqlalchemy import Boolean, Double, Index, Integer, Table, Text

from scalewright.db.columns import METADATA, may, must, refers

events = Table(
    "events",
    METADATA,
    must("event_id", Integer, "number of the event, ascending", primary=True),
    must("run_id", Text, "the run"),
    must("time", Double, "s since 1970, UTC"),
    may("state_before", Text, "state left"),
    must("state", Text, "state entered"),
    may("reason", Text, "why"),
    must("evidence", Text, "JSON: what was seen"),
    Index(None, "run_id"),
    comment="every change of a run's state; rows are only added",
)

fits = Table(
    "fits",
    METADATA,
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

fit_runs = Table(
    "fit_runs",
    METADATA,
    refers("fit_id", Text, "fits.fit_id", "the fit", primary=True),
    must("run_id", Text, "the run", primary=True),
    must("entered", Boolean, "whether the run entered the fit"),
    may("reason", Text, "why it was left out"),
    comment="which runs entered a fit, and why others did not",
)

tags = Table(
    "tags",
    METADATA,
    refers("run", Integer, "runs.run", "the run", primary=True),
    must("tag", Text, "one word of a person's choice", primary=True),
    comment="words that people put on runs",
)

notes = Table(
    "notes",
    METADATA,
    must("note_id", Integer, "number of the note, ascending", primary=True),
    refers("run", Integer, "runs.run", "the run"),
    must("time", Double, "s since 1970, UTC"),
    must("text", Text, "what a person wrote"),
    Index(None, "run"),
    comment="what people wrote about runs",
)

leases = Table(
    "leases",
    METADATA,
    must("name", Text, "what is leased", primary=True),
    must("owner", Text, "host, process and a random token"),
    must("expires_at", Double, "s since 1970, UTC"),
    comment="who may write results now",
)

schema_version = Table(
    "schema_version",
    METADATA,
    must("version_num", Text, "newest migration that was applied", primary=True),
    comment="version of this schema",
)
