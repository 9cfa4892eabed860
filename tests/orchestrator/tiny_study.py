"""The small study that tests of verbs run: two methods at two budgets, ended at once by the debug payload."""

YAML = """
experiment: tiny
data: {corpus: text.txt, tokenizer: bytes, validation: 0.3}
sizes:
  s: {width: 16, depth: 1, heads: 2}
budgets: [4k, 8k]
methods: [pre-ln, gpt+]
batch: 2
context: 32
evaluation: {n_windows: 4}
"""


def write_text(folder):
    """Write the text that it trains on: 30 documents, 28 kB."""
    words = "the quick brown fox jumps over the lazy dog. " * 20
    (folder / "text.txt").write_text("\n\n".join(f"Document {n}: {words}" for n in range(30)))


def write_study(folder, yaml=YAML):
    """Write the text and the experiments.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder)
    (folder / "experiments.yaml").write_text(yaml)
