"""From experiments.yaml to the journal, the database and the page: what every key that a user writes becomes.

One study, every key at a value that is not its default; one run of it is trained a second time by the plainest loop
there is, from the numbers in odd_study.py.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from odd_study import (
    AGREES,
    BATCH,
    BATCH_TOKENS,
    CONTEXT,
    N_STEPS,
    N_WINDOWS,
    PEAK,
    YAML,
    Numbers,
    Seen,
    look,
    plain_loop,
    write_corpus,
)
from pydantic import BaseModel

from scalewright.models.spec import ModelSpec
from scalewright.orchestrator import cli
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.data.tokenizers import load_tokenizer
from scalewright.orchestrator.jobs.records import Pack

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("odd")
    write_corpus(folder / "words.jsonl")
    (folder / "odd.yaml").write_text(YAML)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("SCALEWRIGHT_DB", raising=False)
        assert cli.run(["submit", "odd.yaml"]) == 0
        assert cli.run(["report", "odd.yaml"]) == 0
        yield look(folder)


def training(*path: str) -> Callable[[Seen], Any]:
    """What spec.json of the main run says: `training` is read back by what trains it (see the plain loop)."""

    def find(seen: Seen) -> Any:
        value = seen.main["identity"]["training"]
        for key in path:
            value = value[key]
        return value

    return find


def model(name: str, which: str = "main") -> Callable[[Seen], Any]:
    return lambda seen: getattr(seen, which)["identity"]["model"][name]


def setting(name: str) -> Callable[[Seen], Any]:
    return lambda seen: seen.main["settings"][name]


def submission_of(pack: Pack) -> dict[str, Any]:
    return json.loads((Path("jobs") / pack.submission_id / "submission.json").read_text())


def pack(read: Callable[[Pack], Any]) -> Callable[[Seen], Any]:
    return lambda seen: read(seen.packs[seen.main["run_id"]])


def column(name: str, which: str = "main") -> Callable[[Seen], Any]:
    return lambda seen: seen.row(getattr(seen, which))[name]


def corpus_text(seen: Seen) -> str:
    """The validation text as its tokens decode, a newline for the end of each document."""
    made = manifest.read(seen.data_dir)
    tokenizer = load_tokenizer(made.tokenizer, made.folder(seen.data_dir))
    shards = manifest.open_split(made, seen.data_dir, "validation")
    ids = [int(one) for shard in shards for one in shard if int(one) != made.tokenizer["end_id"]]
    return tokenizer.decode(ids) + "\n" * sum(int((shard == made.tokenizer["end_id"]).sum()) for shard in shards)


def validation_share(seen: Seen) -> float:
    made = manifest.read(seen.data_dir)
    return made.validation.n_documents / (made.train.n_documents + made.validation.n_documents)


def plain_n_params(seen: Seen, size: str) -> int:
    """Non-embedding parameters of a size without method or gate: what budgets and rates count by."""
    from scalewright.models.count import n_params as count

    shapes = {"a": {"width": 16, "depth": 2, "mlp_width": 24}, "b": {"width": 8, "depth": 1}}
    spec = ModelSpec(**shapes[size], heads=2, vocab_size=290, context=CONTEXT, method="pre-ln")
    return count(spec, "non-embedding")


def power_rate(seen: Seen) -> float:
    """0.08 (N / N_a)^-1 (1200 / 300)^-0.5, times the factor 2."""
    return 0.08 * plain_n_params(seen, "a") / plain_n_params(seen, "b") / 2 * 2


def evaluated_steps(seen: Seen) -> list[int]:
    own = seen.evaluations[seen.evaluations["run_id"] == seen.main["run_id"]]
    return own["step"].tolist()


Row = tuple[Callable[[Seen], Any], Any]  # what is found, what must be found (a value, or a function of what is seen)
ROWS: dict[str, Row] = {
    "experiment": (column("experiment"), "odd"),
    "data.corpus": (lambda seen: set(corpus_text(seen).replace(".", " ").split()) >= {"whale", "lantern"}, True),
    "data.field": (lambda seen: "not this" in corpus_text(seen), False),
    "data.tokenizer": (lambda seen: manifest.read(seen.data_dir).tokenizer["name"], "bpe:290"),
    "data.vocab_size": (column("vocab_size"), 290),
    "data.validation": (validation_share, pytest.approx(0.25, abs=0.07)),  # drawn by document
    "sizes.width": (column("width"), 16),
    "sizes.depth": (column("depth"), 2),
    "sizes.heads": (column("heads"), 2),
    "sizes.mlp_width": (model("mlp_width"), 24),
    "sizes.rope_base": (model("rope_base"), 4.0),
    "sizes.norm_eps": (model("norm_eps"), 0.01),
    "budgets": (column("n_tokens"), 1200),
    "methods.label": (column("label"), "mine"),
    "methods.method": (column("method"), "pre-ln"),
    "methods.options": (lambda seen: seen.other["identity"]["model"]["method_options"]["alpha_init"], 0.2),
    "methods.gate": (column("gate"), "gpas"),
    "methods.gate_options": (lambda seen: model("gate_options")(seen)["init"], 0.3),
    "methods.init": (column("init"), "spike-no-more"),
    "methods.init_options": (lambda seen: model("init_options")(seen)["std"], 0.1),
    "lr<table>.values": (column("lr_peak"), PEAK),
    "lr<power>.lr": (column("lr_peak", "other"), lambda seen: pytest.approx(power_rate(seen), rel=1e-5)),
    "seeds": (lambda seen: [column("seed", which)(seen) for which in ("main", "other")], [5, 2]),
    "batch": (training("batch_sequences"), BATCH),
    "context": (column("context"), CONTEXT),
    "precision": (lambda seen: {row["precision"] for row in seen.rows.values()}, {"fp32", "bf16-mixed"}),
    "lr_factor": (lambda seen: column("lr_peak")(seen) / 0.04, 0.5),
    "optimizer.name": (column("optimizer"), "adamw"),
    "optimizer.beta1": (training("optimizer", "beta1"), 0.6),
    "optimizer.beta2": (training("optimizer", "beta2"), 0.7),
    "optimizer.eps": (training("optimizer", "eps"), 1e-3),
    "optimizer.weight_decay": (column("weight_decay"), 2.0),
    "optimizer.decay": (training("optimizer", "decay"), "all"),
    "optimizer.clip_norm": (training("optimizer", "clip_norm"), 0.5),
    "optimizer.gate_clip_norm": (training("optimizer", "gate_clip_norm"), 0.01),
    "schedule.name": (column("schedule"), "wsd"),
    "schedule.warmup": (training("schedule", "warmup_tokens"), 4 * BATCH_TOKENS),
    "schedule.decay": (training("schedule", "decay_tokens"), 6 * BATCH_TOKENS),
    "schedule.final": (training("schedule", "final_fraction"), 0.25),
    "grid.name": (column("run_group"), "main"),
    "grid.axes": (lambda seen: column("seed")(seen), 5),
    "grid.zip": (lambda seen: (column("size", "other")(seen), column("budget", "other")(seen)), ("b", "short")),
    "grid.exclude.axes": (lambda seen: {r["size"] for r in seen.rows.values() if r["label"] == "theirs"}, {"b"}),
    "grid.holdout": (lambda seen: seen.row(seen.specs["held"])["holdout"], True),
    "exclude.axes": (lambda seen: [r["seed"] for r in seen.rows.values() if r["run_group"] == "held"], [2]),
    "holdout.axes": (column("holdout"), True),
    "compare.method": (lambda seen: "theirs" in seen.html, True),
    "compare.baseline": (lambda seen: "mine" in seen.html, True),
    "evaluation.at": (lambda seen: {2, 7} <= set(evaluated_steps(seen)), True),
    "evaluation.every": (evaluated_steps, [2, 6, 7, 12, 18, 20]),
    "evaluation.n_windows": (lambda seen: set(seen.evaluations["n_tokens_evaluated"]), {N_WINDOWS * CONTEXT}),
    "divergence.rise_nats": (training("divergence", "rise_nats"), 0.7),
    "divergence.patience": (training("divergence", "patience"), 0.33),
    "diagnostics.at": (lambda seen: [line["step"] for line in seen.journal(seen.main, "layers")], [10]),
    "log_every": (lambda seen: [r["step"] for r in seen.journal(seen.main, "metrics")], [3, 6, 9, 12, 15, 18, 20]),
    "checkpoint_every": (setting("checkpoint_every_s"), 45.0),
    "database": (lambda seen: [path.name for path in seen.folder.glob("*.sqlite")], ["odd.sqlite"]),
    "executor": (pack(lambda pack: submission_of(pack)["executor"]), "debug"),
    "resources.profiles.micro_batch": (setting("micro_batch_sequences"), 1),
    "resources.profiles.flops_per_s": (
        column("wall_s_planned"), lambda seen: pytest.approx(column("flops_planned")(seen) / 1e9 + N_STEPS * 0.003),
    ),
    "resources.profiles.threads": (lambda seen: seen.other["settings"]["threads"], 2),
    "resources.rules.use": (setting("profile"), "own"),
    "resources.rules.methods": (lambda seen: seen.other["settings"]["profile"], "other"),
    "retry.errors": (pack(lambda pack: pack.retry["errors"]), 2),
    "retry.same_error": (pack(lambda pack: pack.retry["same_error"]), 4),
    "retry.hang": (pack(lambda pack: pack.hang_s), 1200.0),
}  # fmt: skip


# Keys that say nothing of what is trained or need a cluster: the test that goes from the YAML to what they do.
CONFIG, SLURM = "tests/orchestrator/config/test_config.py", "tests/orchestrator/jobs/test_submit_slurm.py"
LOCAL, PLAN = "tests/orchestrator/jobs/test_submit_local.py", "tests/orchestrator/plan/test_plan.py"
PROFILE = f"{SLURM}::test_arrays_ask_for_what_the_profile_says_and_for_any_option_by_its_name"
RATES = "tests/orchestrator/config/test_learning_rate.py"
METHOD_RATE = f"{RATES}::test_a_method_changes_any_number_of_a_power_rule_and_its_label_comes_before_its_name"
ASKED = ("pack", "partition", "account", "qos", "constraint", "gpus", "cpus", "mem", "time", "setup", "sbatch")
TUNING = "tests/orchestrator/cli/test_tuning.py"
AXES = "tests/orchestrator/plan/test_axes.py"
CURVES = f"{AXES}::test_every_run_of_a_curve_has_its_compute"
LADDER = f"{AXES}::test_a_ladder_is_half_a_layer_off_at_most_and_as_wide_as_its_aspect_asks"
STORED = f"{AXES}::test_a_curve_goes_round_a_stated_number_of_parameters_or_a_stored_law"
ELSEWHERE: dict[str, str] = {
    "extends": f"{AXES}::test_a_file_takes_each_key_that_it_lacks_whole_from_the_one_it_extends",
    **dict.fromkeys([f"ladder.{key}" for key in ("aspect", "head_dim", "mlp_ratio", "from", "to", "steps")], LADDER),
    **dict.fromkeys([f"isoflop.{key}" for key in ("budgets", "sizes", "span", "aspect", "head_dim")], CURVES),
    **dict.fromkeys([f"isoflop.{key}" for key in ("centre", "law", "method")], STORED),
    "isoflop.mlp_ratio": f"{AXES}::test_the_sizes_of_a_curve_have_the_mlp_that_is_asked_for",
    **dict.fromkeys(["when", "exclude.condition"], f"{AXES}::test_what_is_kept_meets_every_when_and_no_exclude"),
    **dict.fromkeys(
        ["grid.when", "grid.exclude.condition"],
        f"{AXES}::test_a_group_has_conditions_of_its_own_and_options_by_name",
    ),
    "holdout.condition": f"{AXES}::test_a_condition_marks_what_is_held_out_and_a_rate_is_the_resolved_one",
    "lr<fixed>.lr": f"{RATES}::test_a_number_is_a_fixed_rate",
    "lr<law>.law": f"{RATES}::test_a_stored_law_is_evaluated_for_the_label",
    **dict.fromkeys([f"lr<power>.{key}" for key in ("at", "exponent", "token_exponent", "tokens_at")], METHOD_RATE),
    **dict.fromkeys([f"lr<power>.methods.{key}" for key in ("lr", "exponent", "token_exponent")], METHOD_RATE),
    "methods.experimental": "tests/models/test_spec.py",
    "methods.recipe": "tests/orchestrator/config/test_recipes.py::test_a_recipe_of_ones_own_changes_a_known_one",
    "recipes.base": "tests/orchestrator/config/test_recipes.py::test_a_recipe_of_ones_own_changes_a_known_one",
    "data.lossy_tokenizer": (
        "tests/orchestrator/data/test_data_prepare.py::"
        "test_a_tokenizer_that_does_not_give_the_text_back_is_refused_unless_meant"
    ),
    "data.dir": "tests/orchestrator/config/test_config_errors.py",
    "mirrors.name": "tests/orchestrator/train/test_mirrors.py",
    "mirrors.options": "tests/orchestrator/train/test_mirrors.py",
    "evaluation.corpora": "tests/orchestrator/cli/test_corpora.py"
    "::test_the_loss_on_each_text_is_that_of_its_tokens_and_bytes",
    "optimizer.momentum": "tests/orchestrator/train/test_muon.py::test_the_recipe_reaches_the_run_and_changes_its_loss",
    "shared_trunk": "tests/orchestrator/cli/test_shared_trunk.py"
    "::test_runs_of_a_shared_trunk_end_as_they_would_alone_to_the_last_bit",
    "compile": "tests/contracts/test_every_model_compiles.py",
    "resources.profiles.price": "tests/orchestrator/cli/test_planning_verbs.py"
    "::test_the_bill_has_gpu_hours_their_price_and_disk_and_a_limit_stops_it",
    "tune.lr": f"{TUNING}::test_a_sweep_comes_first_and_then_the_grid_at_its_best_rates",
    "tune.at": f"{TUNING}::test_a_sweep_comes_first_and_then_the_grid_at_its_best_rates",
    "tune.budget": f"{TUNING}::test_a_sweep_comes_first_and_then_the_grid_at_its_best_rates",
    "tune.seeds": f"{TUNING}::test_what_cannot_be_tuned_is_refused_in_one_line",
    "notify": f"{LOCAL}::test_the_notification_command_runs_once_when_the_last_job_is_over",
    "max_parallel": f"{SLURM}::test_the_arrays_of_a_class_have_all_places_one_after_another",
    **dict.fromkeys([f"resources.profiles.{key}" for key in ASKED], PROFILE),
    "resources.profiles.at_once": (
        "tests/orchestrator/jobs/test_scheduler.py::test_a_pack_takes_the_time_of_its_runs_over_its_lanes"
    ),
    "resources.profiles.devices": "tests/orchestrator/train/test_train_devices.py",
    **dict.fromkeys(
        [f"resources.rules.{key}" for key in ("sizes", "min_params", "max_params")],
        f"{CONFIG}::test_the_first_rule_that_fits_picks_the_profile",
    ),
}


def sections_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        if not isinstance(part, str):
            yield from sections_in(part)


def keys_of(section: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every key that holds a value, of a section and of those in it; the rules of a rate each by their name."""
    for name, field in section.model_fields.items():
        if field.exclude or name == "rule":
            continue
        key, inside = f"{path}{field.alias or name}", list(dict.fromkeys(sections_in(field.annotation)))
        if not inside:
            yield key
        for one in inside:
            rule = one.model_fields.get("rule")
            yield from keys_of(one, f"{key}<{get_args(rule.annotation)[0]}>." if rule else f"{key}.")


def row_of(key: str) -> str:
    """The same section stands in several places (test_recipes: each layer over the next, key by key)."""
    for place in ("sizes.", "methods.", "recipes."):
        if key.startswith((f"{place}optimizer.", f"{place}schedule.", f"{place}lr<")):
            return key.removeprefix(place)
    return key


def test_every_key_of_the_yaml_has_a_row() -> None:
    keys = {row_of(key) for key in keys_of(Experiment)}
    assert keys - ROWS.keys() - ELSEWHERE.keys() == set()
    assert (ROWS.keys() | ELSEWHERE.keys()) - keys == set()
    assert ROWS.keys() & ELSEWHERE.keys() == set()


@pytest.mark.parametrize("key", ELSEWHERE)
def test_what_another_test_holds_is_there(key: str) -> None:
    file, _, name = ELSEWHERE[key].partition("::")
    assert (ROOT / file).is_file() and (not name or f"def {name}(" in (ROOT / file).read_text())


@pytest.mark.parametrize("key", ROWS)
def test_a_key_is_found_where_it_acts(seen: Seen, key: str) -> None:
    find, expected = ROWS[key]
    assert find(seen) == (expected(seen) if callable(expected) else expected)


def test_the_rate_that_is_logged_is_that_of_the_step(seen: Seen) -> None:
    logged = {line["step"]: line["values"]["lr"] for line in seen.journal(seen.main, "metrics")}
    assert logged == pytest.approx({step: Numbers().rate(step) for step in (3, 6, 9, 12, 15, 18, 20)}, rel=1e-12)


def test_a_logged_loss_is_the_mean_since_the_last_and_a_norm_that_before_clipping(seen: Seen) -> None:
    logged = seen.journal(seen.main, "metrics")
    losses, ends = seen.reference.losses, [0, 3, 6, 9, 12, 15, 18, 20]
    means = [sum(losses[a:b]) / (b - a) for a, b in zip(ends, ends[1:], strict=False)]
    assert [line["values"]["loss_nats"] for line in logged] == pytest.approx(means, rel=AGREES)
    norms = [seen.reference.norms[step - 1] for step in ends[1:]]
    assert [line["values"]["grad_norm"] for line in logged] == pytest.approx(norms, rel=1e-2)
    assert min(norms) > Numbers().clip_norm
    assert [line["tokens"] for line in logged] == [step * BATCH_TOKENS for step in ends[1:]]
    n_windows = manifest.read(seen.data_dir).train.n_windows(CONTEXT)
    assert logged[-1]["values"]["epochs"] == pytest.approx(N_STEPS * BATCH / n_windows)


def test_evaluations_are_those_of_the_plain_loop_in_nats_and_bits(seen: Seen) -> None:
    own = seen.evaluations[seen.evaluations["run_id"] == seen.main["run_id"]]
    expected = [seen.reference.validation[step - 1] for step in own["step"]]
    assert own["loss_nats"].tolist() == pytest.approx(expected, rel=AGREES)
    n_bytes = len(corpus_text(seen).encode())
    n_tokens = manifest.read(seen.data_dir).validation.n_tokens
    assert n_bytes / n_tokens > 1.5
    bits = own["loss_nats"] / math.log(2) * n_tokens / n_bytes
    assert own["bits_per_byte"].tolist() == pytest.approx(bits.tolist(), rel=1e-9)


def test_the_same_numbers_stand_in_journal_database_and_page(seen: Seen) -> None:
    for run_id, row in seen.rows.items():
        done = json.loads((seen.folder / "runs" / run_id / "DONE.json").read_text())
        last = [line for line in seen.journals[run_id] if line["type"] == "evaluation"][-1]
        for name in ("loss_nats", "bits_per_byte"):
            assert row[name] == done[name] == last["values"][name]
        assert row["n_tokens"] == done["n_tokens"] == last["tokens"] == row["n_tokens_planned"]
        assert row["flops"] == row["flops_per_token"] * row["n_tokens"]
        page = seen.pages[run_id]
        for name in ("loss_nats", "bits_per_byte", "lr_peak", "seed", "precision"):
            shown = f"{row[name]:.6g}" if isinstance(row[name], float) else f"{row[name]}"
            assert f"  {name:<18} {shown}\n" in page


OTHER: dict[str, Any] = {
    "mlp_width": 32, "rope_base": 10_000.0, "norm_eps": 1e-6, "gate_init": 0.0, "std": 0.02, "peak": 0.04,
    "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "decayed": "matrices", "clip_norm": 1.0,
    "gate_clip_norm": 1e9, "schedule": "cosine", "warmup_steps": 2, "decay_steps": 4, "final": 0.0, "seed": 2,
    "batch": 8, "context": 24, "n_windows": 8, "heads": 4, "width": 8, "depth": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_the_plain_loop_with_any_other_number_is_another_run(seen: Seen, name: str) -> None:
    """The run agrees with the loop, and would not if any one of its numbers were taken from elsewhere."""
    other = plain_loop(seen.data_dir, Numbers(**{name: OTHER[name]})).validation[-1]
    assert abs(other / seen.reference.validation[-1] - 1) > 4 * AGREES
