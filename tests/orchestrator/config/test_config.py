"""experiments.yaml -> Experiment: the short forms, the long ones, and the defaults."""

from pathlib import Path

import pytest

from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.load import load_experiment, read_experiment
from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.config.values import Extent
from scalewright.orchestrator.config.yaml_text import parse_yaml

ROOT = Path(__file__).resolve().parents[3]
TEN_LINES = """\
experiment: first
sizes:
  small: { width: 32, depth: 2, heads: 2 }
  large: { width: 64, depth: 3, heads: 4 }
budgets: [0.2M, 20x, 1e12 FLOPs]
methods: [gpt+, pre-ln+gpas]
"""


def read(added: str):
    return read_experiment(TEN_LINES + added)


def test_ten_lines_are_an_experiment():
    experiment = read("")
    assert experiment.name == "first"
    assert list(experiment.sizes) == ["small", "large"]
    assert list(experiment.budgets) == ["0.2M", "20x", "1e12 FLOPs"]
    assert experiment.labels == ("gpt+", "pre-ln+gpas")
    assert experiment.seeds == (0,)
    assert experiment.data.corpus == ("embedded",)


@pytest.mark.parametrize(
    ("short", "method", "gate"),
    [
        ("gpt+", "gpt+", "none"),
        ("gpt++gpas", "gpt+", "gpas"),
        ("pre-ln+gpas", "pre-ln", "gpas"),
        ("pre-ln+gpas-per-sublayer", "pre-ln", "gpas-per-sublayer"),
    ],
)
def test_a_method_with_its_gate_has_a_short_form(short, method, gate):
    experiment = read_experiment(TEN_LINES.replace("gpt+, pre-ln+gpas", short))
    assert (experiment.methods[0].method, experiment.methods[0].gate) == (method, gate)
    assert experiment.labels == (short,)


def test_methods_can_be_named_by_a_mapping():
    text = TEN_LINES.replace("[gpt+, pre-ln+gpas]", "{ours: angpt, theirs: {method: pre-ln, gate: gpas}}")
    experiment = read_experiment(text)
    assert experiment.labels == ("ours", "theirs")
    assert experiment.methods[1].gate == "gpas"


def test_options_are_read_by_their_looks_and_lr_by_its_type():
    text = TEN_LINES.replace(
        "[gpt+, pre-ln+gpas]",
        "\n  - { label: a, method: angpt, lr: 1e-2, options: { alpha_init: 5e-2, bound_axis: row, qk_norm: false } }",
    )
    method = read_experiment(text).methods[0]
    assert method.options == {"alpha_init": 0.05, "bound_axis": "row", "qk_norm": False}
    assert method.lr.lr == 0.01


@pytest.mark.parametrize(("written", "seeds"), [("3", (0, 1, 2)), ("[3]", (3,)), ("[0, 7]", (0, 7))])
def test_one_number_of_seeds_counts_them_and_a_list_names_them(written, seeds):
    assert read(f"seeds: {written}\n").seeds == seeds


def test_budgets_can_have_names():
    experiment = read_experiment(TEN_LINES.replace("[0.2M, 20x, 1e12 FLOPs]", "{short: 0.2M, chinchilla: 20x}"))
    assert list(experiment.budgets) == ["short", "chinchilla"]
    assert experiment.budgets["chinchilla"].unit == "tokens per parameter"


def test_one_value_stands_for_a_list_of_one():
    experiment = read("batch: 4\ncontext: [64, 128]\nlr_factor: 2\n")
    assert (experiment.batch, experiment.context, experiment.lr_factor) == ((4,), (64, 128), (2.0,))


def test_comparisons_read_as_a_sentence():
    pair = read("compare: pre-ln+gpas over gpt+\n").compare[0]
    assert (pair.method, pair.baseline) == ("pre-ln+gpas", "gpt+")


def test_a_corpus_can_stand_for_the_data():
    assert read("data: my.txt\n").data.corpus == ("my.txt",)
    assert read("data: { corpus: [a.jsonl, b.txt], tokenizer: bpe, vocab_size: 4k }\n").data.vocab_size == 4000


def test_mirrors_have_a_short_form_and_options():
    mirrors = read("mirrors: [tensorboard, { name: wandb, options: { project: p } }]\n").mirrors
    assert [(mirror.name, mirror.options) for mirror in mirrors] == [("tensorboard", {}), ("wandb", {"project": "p"})]


def test_overrides_hold_only_what_is_written():
    experiment = read("optimizer: { weight_decay: 0.05, clip_norm: none }\nschedule: { warmup: 100 steps }\n")
    assert experiment.optimizer.written() == {"weight_decay": 0.05, "clip_norm": None}
    assert experiment.schedule.written() == {"warmup": Extent(100.0, "steps")}


RESOURCES = """\
executor: slurm
max_parallel: 64
retry: { errors: 2, same_error: 3, hang: 45min }
notify: "mail -s {experiment} me"
resources:
  profiles:
    cpu: { partition: short, cpus: 4, mem: 8G, time: 12:30:00, pack: 16 }
    gpu:
      gpus: 1
      time: auto
      account: lab
      qos: normal
      constraint: a100
      setup: [module load cuda, source env/bin/activate]
      sbatch: { exclusive: true, reservation: week, nice: 100 }
  rules:
    - { sizes: large, use: gpu }
    - { min_params: 1M, use: gpu }
    - { use: cpu }
"""


def test_resource_profiles_hold_what_a_job_asks_for():
    experiment = read(RESOURCES)
    gpu, cpu = experiment.resources.profile("gpu"), experiment.resources.profile("cpu")
    assert (cpu.partition, cpu.cpus, cpu.mem, cpu.time_s, cpu.pack) == ("short", 4, "8G", 45000.0, 16)
    assert (gpu.gpus, gpu.time_s, gpu.account, gpu.qos, gpu.constraint) == (1, None, "lab", "normal", "a100")
    assert gpu.setup == ("module load cuda", "source env/bin/activate")
    assert gpu.sbatch == {"exclusive": True, "reservation": "week", "nice": 100}
    assert (experiment.executor, experiment.max_parallel) == ("slurm", 64)
    assert (experiment.retry.errors, experiment.retry.same_error, experiment.retry.hang_s) == (2, 3, 2700.0)


@pytest.mark.parametrize(
    ("size", "n_params", "profile"), [("large", 10, "gpu"), ("small", 2_000_000, "gpu"), ("small", 999_999, "cpu")]
)
def test_the_first_rule_that_fits_picks_the_profile(size, n_params, profile):
    assert read(RESOURCES).resources.pick(size=size, label="gpt+", n_params=n_params) == profile


def test_without_profiles_every_run_has_the_default_one():
    resources = read("").resources
    assert resources.pick(size="small", label="gpt+", n_params=1) == "default"
    assert resources.profile("default") == Profile()


def test_the_demo_is_a_good_experiment():
    experiment = load_experiment(ROOT / "experiments.yaml")
    assert set(experiment.labels) == {"gpt+", "angpt", "pre-ln", "pre-ln+gpas"}
    assert len(experiment.sizes) >= 3
    assert len(experiment.budgets) >= 3


@pytest.mark.parametrize("name", ["starter.yaml", "full.yaml"])
def test_every_template_is_a_good_experiment(name):
    load_experiment(ROOT / "orchestrator" / "config" / "templates" / name)


def yaml_blocks() -> list[str]:
    text = (ROOT / "docs" / "experiments-yaml.md").read_text()
    return [block.split("```")[0] for block in text.split("```yaml\n")[1:]]


BASE = {
    "experiment": "docs",
    "sizes": "{ 27k: &s { width: 32, depth: 2, heads: 2 }, 55k: *s, 141k: *s }",
    "budgets": "[0.2M, 0.4M, 0.8M]",
    "methods": "[gpt+, angpt]",
}


@pytest.mark.parametrize("block", yaml_blocks())
def test_every_example_in_the_reference_is_good(block):
    written = parse_yaml(block, "docs").value or {}
    rest = [f"{key}: {value}\n" for key, value in BASE.items() if key not in written]
    read_experiment(block + "".join(rest))


def test_every_key_is_in_the_reference_and_in_the_full_template():
    reference = (ROOT / "docs" / "experiments-yaml.md").read_text()
    template = (ROOT / "orchestrator" / "config" / "templates" / "full.yaml").read_text()
    keys = [field.alias or name for name, field in Experiment.model_fields.items() if not field.exclude]
    assert [key for key in keys if f"`{key}`" not in reference] == []
    assert [key for key in keys if f"{key}:" not in template] == []


DEFAULTS_SHOWN = (
    "batch",
    "context",
    "precision",
    "log_every_steps",
    "checkpoint_every_s",
    "compile",
    "lr_factor",
    "retry",
)


def test_the_templates_agree_with_each_other_and_with_the_defaults():
    templates = ROOT / "orchestrator" / "config" / "templates"
    starter, full, demo = (load_experiment(templates / f"{name}.yaml") for name in ("starter", "full", "demo"))
    shapes = [
        {name: (size.width, size.depth, size.heads, size.mlp_width) for name, size in one.sizes.items()}
        for one in (starter, full, demo)
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert all(width // heads >= 32 for width, _, heads, _ in shapes[0].values())
    assert starter.batch == demo.batch
    plain = read_experiment("".join(f"{key}: {value}\n" for key, value in BASE.items()))
    assert {name: getattr(full, name) for name in DEFAULTS_SHOWN} == {
        name: getattr(plain, name) for name in DEFAULTS_SHOWN
    }
