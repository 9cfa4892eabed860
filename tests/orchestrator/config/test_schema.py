"""The JSON schema that editors check an experiments.yaml with: what loads passes, what is misspelt does not."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from scalewright.orchestrator.cli import run
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.load import read_experiment
from scalewright.orchestrator.config.schema import MEANS, experiment_schema

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted((ROOT / "orchestrator" / "config" / "templates").glob("*.yaml"))
SMALL = """
experiment: small
sizes: {s: {width: 32, depth: 2, heads: 2}}
budgets: [0.3M]
methods: [gpt+, pre-ln+gpas]
"""


@pytest.fixture(scope="module")
def schema(request):
    return experiment_schema()


def refusals(schema, text):
    written = YAML(typ="safe", pure=True).load(text)
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(written)]


def test_the_schema_is_one_and_the_verb_prints_it(schema, capsys):
    jsonschema.Draft202012Validator.check_schema(schema)
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(schema))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_the_templates_pass(schema, path):
    assert refusals(schema, path.read_text()) == []


def whole_files():
    blocks = re.findall(
        r"```yaml\n(.*?)```", "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md")), re.S
    )
    return [block for block in blocks if re.search(r"^experiment:", block, re.M) and "methods:" in block]


def test_the_files_of_the_pages_pass(schema):
    assert whole_files()
    for block in whole_files():
        assert refusals(schema, block) == [], block


FORMS = """
seeds: 3
seeds: [0, 5]
batch: 4
batch: [4, 8Ki]
precision: [fp32, bf16-mixed]
lr: 0.02
lr: 2e-2
lr: {gpt+: {s: 0.01, default: 0.02}}
lr: {rule: power, lr: 0.02, at: s, exponent: 0.3, methods: {gpt+: {exponent: 0.5}}}
lr: {rule: law, law: tuned}
tune: {lr: "log(3e-4, 3e-2, 6)", at: s}
tune: {lr: [0.01, 0.02, 0.04]}
ladder: {from: 1M, to: 10M, steps: 3}
grid: {size: s}
grid: [{name: a, size: s, optimizer.weight_decay: [0, 0.1]}, {zip: {size: [s], budget: [0.3M]}, holdout: yes}]
when: n_tokens / n_params < 200
exclude: [n_params > 1e8, {size: s, seed: [1]}]
holdout: {budget: 0.3M}
compare: pre-ln+gpas over gpt+
compare: [{method: pre-ln+gpas, baseline: gpt+}]
data: my.txt
data: [a.txt, b.txt]
data: {corpus: a.txt, validation: 2%}
diagnostics: [50%, 100%]
diagnostics: {at: 10%}
mirrors: [tensorboard, {name: wandb, options: {project: p}}]
schedule: {warmup: 100 steps, final: 10%}
schedule: {warmup: 0}
optimizer: {clip_norm: none, decay: matrices}
recipes: {mine: {base: gpt, optimizer: {weight_decay: 0.05}}}
checkpoint_every: 5min
resources: {profiles: {gpu: {gpus: 1, mem: 8G, time: auto, pack: 4, sbatch: {nice: 5}}}, rules: [{use: gpu}]}
retry: {errors: 2, hang: 30min}
executor: slurm
compile: on
"""


@pytest.mark.parametrize("line", FORMS.strip().splitlines())
def test_every_form_that_loads_passes(schema, line):
    read_experiment(SMALL + line + "\n")
    assert refusals(schema, SMALL + line) == []


WRONG = """
seedz: [0]
batch: many
lr: {rule: powr, lr: 0.02}
grid: [{sizee: s}]
grid: [{optimiser.eps: 1}]
compare: [gpt+ against pre-ln]
data: {corpuss: a.txt}
mirrors: [tensorbord]
schedule: {name: cosin}
optimizer: {beta3: 0.9}
precision: fp23
executor: slrum
resources: {profiles: {gpu: {gpu: 1}}}
retry: {error: 2}
evaluation: {n_windows: few}
compile: maybe
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_what_does_not_load_does_not_pass(schema, line):
    with pytest.raises(ValueError):
        read_experiment(SMALL + line + "\n")
    assert refusals(schema, SMALL + line) != []


@pytest.mark.parametrize(
    "old,new",
    [
        ("gpt+, ", "gpt-plus, "),
        ("width", "widht"),
        ("methods", "method"),
        ("experiment: small", ""),
        ("+gpas", "+gaps"),
    ],
)
def test_a_wrong_key_or_name_does_not_pass(schema, old, new):
    assert refusals(schema, SMALL.replace(old, new)) != []


def test_every_key_says_what_it_means(schema):
    keys = {field.alias or name for name, field in Experiment.model_fields.items() if not field.exclude}
    assert set(MEANS) == keys == set(schema["properties"])
    assert all(told["description"] for told in schema["properties"].values())
