# ruff: noqa: E501 - one bad input and its exact message a line
"""What bad input gets: one line with file, line and key path, and the valid names."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewright.models.gating import GATES
from scalewright.models.methods import METHODS
from scalewright.orchestrator.config.load import load_experiment, read_experiment
from scalewright.orchestrator.config.resources import EXECUTORS
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.plan.expand import expand

GOOD = """\
experiment: tiny
sizes:
  small: { width: 32, depth: 2, heads: 2 }
budgets: [0.2M]
methods: [gpt+]
"""

METHOD_NAMES = ", ".join(METHODS)
METHOD_KEYS = (
    "label, method, options, gate, gate_options, init, init_options, experimental, recipe, lr, optimizer, schedule"
)

# (what is replaced, by what, the message after "experiments.yaml:")
REPLACED = [
    (
        "gpt+]",
        "gtp+]",
        f'5: methods[0]: unknown method "gtp+"; did you mean "gpt+"? (valid: {METHOD_NAMES})',
    ),
    ("[gpt+]", "[{methd: gpt+}]", f'5: methods[0].methd: unknown key; did you mean "method"? (valid: {METHOD_KEYS})'),
    (
        "[gpt+]",
        "[{method: gpt+, gate: gapas}]",
        '5: methods[0].gate: unknown gate "gapas"; did you mean "gpas"? '
        f"(valid: {', '.join(GATES)})",
    ),
    ("[gpt+]", "[gpt+, gpt+]", '5: methods[1]: a second method with the label "gpt+"; give each another `label:`'),
    ("[gpt+]", "[]", "5: methods: must hold at least one item"),
    ("[gpt+]", "{mine: {method: gpt+, options: 3}}", '5: methods.mine.options: expected a mapping of option: value, got "3"'),
    ("heads: 2", "heads: 3", "3: sizes.small: heads = 3: width 32 / heads must be a whole even number"),
    ("heads: 2", "heads: two", '3: sizes.small.heads: "two" is not a number; write for example 131072, 1e-3 or 0.5M'),
    ("width: 32", "width: 0", "3: sizes.small.width: must be at least 1, not 0"),
    (", heads: 2", "", "3: sizes.small.heads: this key is missing"),
    ("[0.2M]", "[0]", '4: budgets[0]: "0" must be greater than 0'),
    ("[0.2M]", "[1M, 20y]", '4: budgets[1]: "20y" is not a budget; write tokens (0.5M), tokens per parameter (20x) or 1e15 FLOPs'),
    ("[0.2M]", "[]", "4: budgets: must hold at least one item"),
    ("[0.2M]", "{ }", "4: budgets: must hold at least one item"),
    ("budgets: [0.2M]\n", "", "1: budgets: this key is missing"),
    ("[0.2M]", "[0.2M", "4: not valid YAML: this '[' is not closed"),
    ("  small:", "\tsmall:", "3: not valid YAML: a tab cannot indent; use spaces"),
    ("tiny", "tiny: er", "1: not valid YAML: unexpected ':' (quote a text that holds ': ', or start a new line)"),
    ("tiny", "a/b", '1: experiment: "a/b" must be a name without / \\ or :, of at most 100 characters'),
    ("tiny", '"a\\nb"', '1: experiment: "a b" must be one line of printable text'),
    ("[gpt+]", "[gpt+]\nseeds: 1000000000", "6: seeds: 1,000,000,000 seeds; at most 10,000 (one number is how many, a list which)"),
    ("tiny", "", "1: experiment: expected a text, got nothing"),
]  # fmt: skip

AXES = "size, budget, method, seed, batch, context, precision, lr, lr_factor"
OVERRIDES = "optimizer.KEY, schedule.KEY, options.KEY, gate_options.KEY, init_options.KEY"

# (lines added at the end, the message after "experiments.yaml:")
ADDED = [
    ("lr: { rule: powr }", '6: lr: unknown learning-rate rule "powr"; did you mean "power"? (valid: fixed, table, power, law)'),
    ("lr: { rule: [] }", '6: lr: unknown learning-rate rule "[]" (valid: fixed, table, power, law)'),
    ("lr: { gpt: 0.1 }", '6: lr.gpt: unknown method, size or budget "gpt"; did you mean "gpt+"? (valid: gpt+, small, 0.2M, default)'),
    ("lr: { rule: table, values: { gpt: 1 } }", '6: lr.values.gpt: unknown method, size or budget "gpt"; did you mean "gpt+"? (valid: gpt+, small, 0.2M, default)'),
    ("lr: -1", '6: lr: "-1" must be greater than 0'),
    ("lr: 1e999", '6: lr: "1e999" is too large for a number'),
    ("lr: { rule: power, lr: 0.01, at: large, exponent: 0.3 }", '6: lr.at: unknown size or number of parameters "large" (valid: small)'),
    ("lr: { rule: power, lr: 0.01, at: small }", "6: lr.exponent: this key is missing"),
    ("grid:\n  - { sizes: small }", f'7: grid[0].sizes: unknown axis; did you mean "size"? (valid: {AXES}, {OVERRIDES})'),
    ("grid:\n  - { size: large }", '7: grid[0].size: unknown size "large" (valid: small)'),
    ("grid:\n  - { seed: one }", '7: grid[0].seed: "one" is not a number; write for example 131072, 1e-3 or 0.5M'),
    ("grid:\n  - zip: { seed: [1, 2], batch: [1] }", "7: grid[0].zip: zipped axes must be of equal length: seed has 2, batch has 1"),
    ("grid:\n  - seed: 1\n    zip: { seed: [1, 2] }", "8: grid[0].zip.seed: this axis is given twice, zipped and crossed"),
    ("grid:\n  - { optimizer.weight_decay: [x] }", '7: grid[0].optimizer.weight_decay: "x" is not a number; write for example 131072, 1e-3 or 0.5M'),
    ("exclude:\n  - { method: gpt+ }", "6: exclude: leaves no point of the grid"),
    ("exclude:\n  - { method: gpt }", '7: exclude[0].method: unknown method "gpt"; did you mean "gpt+"? (valid: gpt+)'),
    ("holdout: [{ budget: 2M }]", '6: holdout[0].budget: unknown budget "2M"; did you mean "0.2M"? (valid: 0.2M)'),
    ("precision: fp16", '6: precision: unknown precision "fp16" (valid: fp32, bf16-mixed, bf16-pure)'),
    ("compare: [gpt+ vs gpt]", '6: compare: "gpt+ vs gpt" is not a comparison; write "angpt over gpt+"'),
    ("compare: [gpt+ over gpt]", '6: compare[0]: unknown method "gpt"; did you mean "gpt+"? (valid: gpt+)'),
    ("schedule: { warmup: 100 }", '6: schedule.warmup: "100" is ambiguous here; write 10%, 100 steps or 20k tokens'),
    ("schedule: { nam: cosine }", '6: schedule.nam: unknown key; did you mean "name"? (valid: name, warmup, decay, final)'),
    ("optimizer: { weight_decay: -0.1 }", '6: optimizer.weight_decay: "-0.1" must be 0 or more'),
    ("executor: slrum", f'6: executor: unknown executor "slrum"; did you mean "slurm"? (valid: {", ".join(EXECUTORS)})'),
    ("resources:\n  profiles:\n    gpu: { time: 90 }", '8: resources.profiles.gpu.time: "90" is not a length of time; write for example 90min, 1h30m or 12:30:00'),
    ("resources:\n  profiles: { gpu: {} }\n  rules:\n    - { use: cpu }", '9: resources.rules[0].use: unknown profile "cpu"; did you mean "gpu"? (valid: gpu)'),
    ("resources:\n  profiles:\n    gpu: { mem: 8 }", '8: resources.profiles.gpu.mem: "8" is no amount of memory; write for example 8G or 512M; sbatch would take 8 for megabytes'),
    ("resources:\n  profiles:\n    gpu: { sbatch: { comment: mine } }", "8: resources.profiles.gpu.sbatch.comment: set by scalewright: a job whose reply was lost is found by it"),
    ("resources:\n  profiles:\n    gpu: { sbatch: { nice: 9, no_requeue: true } }", "8: resources.profiles.gpu.sbatch.no_requeue: set by scalewright: a preempted run goes on by being requeued; how often an error is tried again: `retry:`"),
    ("resources:\n  profiles:\n    gpu: { sbatch: { array: 1-4 } }", "8: resources.profiles.gpu.sbatch.array: set by scalewright: the runs of the grid make the array"),
    ("optimizer: { beta2: 1.0 }", '6: optimizer.beta2: "1.0" must be at least 0 and below 1'),
    ("retry: 3", '6: retry: expected a mapping with keys like errors, same_error, hang; got "3"'),
    ("seeds: 0", "6: seeds: must be at least 1, not 0"),
    ("batch: 1.5", '6: batch: "1.5" is not a whole number of 0 or more'),
    ("lr: [0.01, 0.02]", "6: lr: a list of rates is an axis of the grid; write grid: [{ lr: [0.01, 0.02] }]"),
    ("batch: nan", '6: batch: "nan" is not a number; write for example 131072, 1e-3 or 0.5M'),
    ("methods: [gpt]", "6: the key methods is given twice"),
    ("---\nexperiment: other", "6: not valid YAML: a second document ('---'); write one experiment a file"),
    ("data: { tokenizer: bpe }", "6: data.tokenizer: a bpe tokenizer needs its size, for example vocab_size: 4096"),
    (
        "data: { dir: shards, tokenizer: bpe, vocab_size: 300 }",
        '6: data.tokenizer: not beside dir: the folder "shards" holds shards that are made already',
    ),
    ("data: { vocab_size: 300 }", '6: data.vocab_size: only for tokenizer: bpe; "bytes" has its own size'),
    ("compile: maybe", '6: compile: "maybe" is not true or false'),
    ("notify: &a [*a]", "6: an alias that contains itself, or too many of them"),
    ("mirrors: tensorbord", '6: mirrors: unknown mirror "tensorbord"; did you mean "tensorboard"? (valid: tensorboard, mlflow, wandb)'),
    ("source: x", "6: source: unknown key"),
]  # fmt: skip


def message_of(text: str) -> str:
    with pytest.raises(UserError) as caught:
        expand(read_experiment(text))
    return str(caught.value)


def test_the_text_that_the_bad_inputs_are_made_from_is_good():
    assert len(expand(read_experiment(GOOD))) == 1


@pytest.mark.parametrize(("old", "new", "expected"), REPLACED)
def test_a_mistake_is_one_line_with_file_line_and_key_path(old, new, expected):
    assert old in GOOD
    assert message_of(GOOD.replace(old, new)) == f"experiments.yaml:{expected}"


@pytest.mark.parametrize(("added", "expected"), ADDED)
def test_a_mistake_in_an_optional_key_is_one_line(added, expected):
    assert message_of(f"{GOOD}{added}\n") == f"experiments.yaml:{expected}"


def test_a_misspelt_key_names_the_nearest_one_and_all_valid_ones():
    message = message_of(GOOD.replace("methods:", "metods:"))
    assert message.startswith('experiments.yaml:5: metods: unknown key; did you mean "methods"? (valid: experiment, ')
    assert message.endswith(", retry, notify)")


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "tiny\n", "~\n"])
def test_a_file_that_is_no_mapping_says_what_is_expected(text):
    expected = "experiments.yaml:1: expected keys such as `experiment:`, `sizes:`, `budgets:`, `methods:`"
    assert message_of(text) == expected


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.yaml: no such file \(make a starter with: scalewright init\)"):
        load_experiment(tmp_path / "nowhere.yaml")


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "e.yaml").write_bytes(b"experiment: \xff\n")
    with pytest.raises(UserError, match=r"e.yaml: not UTF-8 text \(byte 12\)"):
        load_experiment(tmp_path / "e.yaml")


def test_aliases_that_multiply_are_refused_and_not_expanded():
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for letter, before in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{letter}: &{letter} [{', '.join([f'*{before}'] * 10)}]\n"
    assert message_of(bomb).endswith("an alias that contains itself, or too many of them")


def test_two_mistakes_are_told_as_the_first_and_how_many_more():
    text = GOOD.replace("heads: 2", "heads: x").replace("[0.2M]", "[0]")
    assert message_of(text).startswith("experiments.yaml:3: sizes.small.heads: ")
    assert message_of(text).endswith(" (and 1 more)")


FULL = (
    (Path(__file__).resolve().parents[3] / "orchestrator" / "config" / "templates" / "full.yaml")
    .read_text()
    .splitlines()
)
RUBBISH = [
    "",
    "0",
    "-1",
    "nan",
    "[]",
    "{}",
    "[[1]]",
    "{a: {b: c}}",
    "~",
    "true",
    "1e400",
    "é",
    "*a",
    "!!python/object:x y",
    "%",
]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(FULL) - 1), st.sampled_from(RUBBISH), st.booleans())
def test_rubbish_anywhere_is_accepted_or_refused_in_one_line(number, rubbish, cut):
    key, colon, _ = FULL[number].partition(":")
    line = "" if cut else f"{key}{colon} {rubbish}"
    text = "\n".join([*FULL[:number], line, *FULL[number + 1 :]])
    try:
        expand(read_experiment(text))
    except UserError as error:
        assert str(error).startswith("experiments.yaml:")
        assert "\n" not in str(error)
