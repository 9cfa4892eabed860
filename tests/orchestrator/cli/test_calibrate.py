"""`plan --calibrate`: the bill's hours from steps timed here, where nobody has measured a shape yet."""

import json

import pytest

from scalewright.orchestrator.cli import run
from scalewright.orchestrator.plan import make
from scalewright.orchestrator.plan.bill import throughput_key
from scalewright.orchestrator.plan.earlier_runs import Known
from scalewright.orchestrator.plan.make import plan_file
from scalewright.orchestrator.train import calibrate

GRID = """
experiment: k
sizes: {s: {width: 16, depth: 1, heads: 2}, l: {width: 32, depth: 1, heads: 2}}
budgets: [3k, 6k]
methods: [pre-ln, angpt]
lr: 0.01
batch: 4
context: 32
%s
"""
SPEEDS = {("pre-ln", 16): 1000.0, ("pre-ln", 32): 500.0, ("angpt", 16): 800.0, ("angpt", 32): 400.0}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda more="": (tmp_path / "k.yaml").write_text(GRID % more)


@pytest.fixture
def timed(monkeypatch):
    """Shapes that were timed, each at a speed of its own."""
    seen = []

    def speed(spec, settings, *, seconds):
        seen.append((spec.model["method"], spec.model["width"]))
        return SPEEDS[seen[-1]]

    monkeypatch.setattr(calibrate, "tokens_per_s", speed)
    return seen


def test_each_shape_is_timed_once_and_the_bill_takes_its_speed(write, timed, capsys):
    write()
    assert run(["plan", "k.yaml", "--calibrate", "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    assert sorted(timed) == sorted(SPEEDS)
    total = next(value for value in bill.values() if isinstance(value, dict) and "wall_s" in value)
    tokens = 3072 + 6016  # whole steps of 128
    assert total["wall_s"] == pytest.approx(sum(tokens / speed for speed in SPEEDS.values()))
    assert total["runs_with_measured_throughput"] == 8


def test_a_shape_that_runs_have_measured_is_not_timed(write, timed, monkeypatch):
    write()
    known = plan_file("k.yaml")[0]
    key = throughput_key(known.runs[0], known.experiment.resources.profile("cpu"))
    monkeypatch.setattr(make, "read_known", lambda study: Known(throughputs={key: 123.0}))
    plan_file("k.yaml", timing=lambda done, of: None)
    assert len(timed) == 3 and (known.runs[0].spec.model["method"], known.runs[0].spec.model["width"]) not in timed


def test_without_the_flag_nothing_is_timed(write, timed):
    write()
    assert run(["plan", "k.yaml"]) == 0
    assert timed == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "executor: slurm",
            "k.yaml:9: executor: --calibrate times steps on this machine, and jobs of slurm run",
        ),
        ("resources: {profiles: {gpu: {gpus: 1}}}", "gpus: asks for a GPU, and this machine has none to time"),
    ],
)
def test_jobs_that_run_elsewhere_are_not_timed_here(write, timed, monkeypatch, capsys, more, said):
    monkeypatch.setattr(calibrate, "has_gpu", lambda: False)
    write(more)
    assert run(["plan", "k.yaml", "--calibrate"]) == 1
    assert said in capsys.readouterr().err and timed == []


def test_the_speed_is_a_steps_tokens_over_its_median_time(write, monkeypatch):
    """Steps that take 9 s (compilation, caches), then .1 s each by the clock; the first two are no measurement."""
    write()
    run_ = plan_file("k.yaml")[0].runs[0]
    ticks = iter([0.0, 9.0] * calibrate.WARM_UP_STEPS + [0.0, 0.1] * 100)
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: next(ticks))
    steps = []
    step_once = calibrate.System.step_once
    monkeypatch.setattr(calibrate.System, "step_once", lambda self, b: (steps.append(b.shape), step_once(self, b)))
    assert calibrate.tokens_per_s(run_.spec, run_.settings, seconds=0.45) == pytest.approx(128 / 0.1)
    assert set(steps) == {(4, 33)} and len(steps) == calibrate.WARM_UP_STEPS + 5
