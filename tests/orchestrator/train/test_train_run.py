"""A run, end to end: a directory in, an outcome, a journal and a checkpoint out."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer, parameter_roles
from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.train import checkpoint
from scalewright.orchestrator.train.evaluate import evaluate
from scalewright.orchestrator.train.run import train
from scalewright.orchestrator.train.sampler import open_train, read_validation

BATCH, CONTEXT, N_STEPS = 4, 16, 40
BATCH_TOKENS = BATCH * CONTEXT

MakeRun = Callable[..., Path]
ReadJournal = Callable[..., list[dict[str, Any]]]


def done(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "DONE.json").read_text())


def values(records: list[dict[str, Any]], name: str) -> list[float]:
    return [record["values"][name] for record in records]


def test_a_run_leaves_its_outcome_its_journal_and_a_checkpoint(make_run: MakeRun, read_journal: ReadJournal) -> None:
    run_dir = make_run()
    assert train(run_dir) == "completed"
    record = done(run_dir)
    assert (record["outcome"], record["step"], record["n_tokens"]) == ("completed", N_STEPS, N_STEPS * BATCH_TOKENS)
    kinds = [entry["type"] for entry in read_journal(run_dir)]
    assert kinds == ["start", *["metrics"] * N_STEPS, "evaluation", "checkpoint", "end"]
    final = read_journal(run_dir, "evaluation")[0]
    assert final["final"] is True
    assert final["annealed"] is True
    assert final["n_tokens"] == 10 * CONTEXT
    assert final["values"] == {name: record[name] for name in ("loss_nats", "bits_per_byte")}
    assert checkpoint.load_latest(run_dir, run_dir.name)["step"] == N_STEPS


def test_the_log_of_the_job_says_where_a_run_is_and_its_losses(make_run: MakeRun, read_journal, capfd) -> None:
    run_dir = make_run(settings={"evaluate_at": [2 * BATCH_TOKENS]})
    train(run_dir)
    where = f"{run_dir.name}: "
    said = [line.removeprefix(where) for line in capfd.readouterr().err.splitlines() if line.startswith(where)]
    first, last = read_journal(run_dir, "evaluation")
    assert (first["step"], last["step"]) == (2, N_STEPS)
    assert said == [
        f"trains from step 0 of {N_STEPS}",
        f"step 2 of {N_STEPS}, validation loss {first['values']['loss_nats']:.4f} nats",
        f"step {N_STEPS} of {N_STEPS}, validation loss {last['values']['loss_nats']:.4f} nats",
        f"completed at step {N_STEPS} of {N_STEPS}",
    ]


def test_training_lowers_the_loss(make_run: MakeRun, read_journal: ReadJournal) -> None:
    run_dir = make_run()
    train(run_dir)
    losses = values(read_journal(run_dir, "metrics"), "loss_nats")
    assert losses[0] == pytest.approx(math.log(256), abs=0.1)  # a fresh model knows nothing
    assert losses[-1] < losses[0] - 1


def reference_loop(run_dir: Path, data_dir: Path, method: str) -> float:
    """Train by the plainest loop there is, sharing only the model, the batches and torch's AdamW."""
    identity = json.loads((run_dir / "spec.json").read_text())["identity"]
    made, training = manifest.read(data_dir), identity["training"]
    model = Transformer(ModelSpec.from_dict(identity["model"]), seed=training["seed"])
    roles = parameter_roles(model)
    matrices = [p for name, p in model.named_parameters() if roles[name] in ("attention", "mlp")]
    rest = [p for name, p in model.named_parameters() if roles[name] not in ("attention", "mlp")]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, fused=True)
    sampler = open_train(data_dir, made, CONTEXT, training["seed"], BATCH)
    for step in range(N_STEPS):
        part = (step + 0.5 - 4) / (N_STEPS - 4)
        rate = (step + 0.5) / 4 if step < 4 else 0.5 * (1 + math.cos(math.pi * part))
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * rate
        batch = torch.from_numpy(sampler.read(step)[0])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if method == "angpt":
            for name, parameter in model.named_parameters():
                if roles[name] in ("embedding", "head", "attention", "mlp"):
                    norms = parameter.data.norm(dim=1, keepdim=True)
                    parameter.data = torch.where(norms > 1, parameter.data / norms, parameter.data)
    windows = torch.from_numpy(read_validation(data_dir, made, CONTEXT, 10))
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()))


@pytest.mark.parametrize("method", ["gpt+", "angpt"])
def test_a_run_is_the_plain_loop(make_run: MakeRun, data_dir: Path, method: str) -> None:
    run_dir = make_run(model={"method": method})
    train(run_dir)
    # not bit for bit: sums in another order (evaluation in batches, the constraint's division)
    assert done(run_dir)["loss_nats"] == pytest.approx(reference_loop(run_dir, data_dir, method), rel=1e-4)


def test_neither_logging_nor_evaluating_nor_saving_changes_the_result(make_run: MakeRun) -> None:
    quiet = make_run("quiet", settings={"log_every_steps": 1000})
    busy = {"evaluate_at": [100, 999, 1500], "checkpoint_every_s": 0.0, "log_every_steps": 3, "label": "busy"}
    loud = make_run("loud", settings=busy)
    assert quiet.name == loud.name
    train(quiet), train(loud)
    assert done(quiet)["loss_nats"] == done(loud)["loss_nats"]


def test_methods_see_the_same_data_in_the_same_order(make_run: MakeRun, read_journal: ReadJournal, monkeypatch) -> None:
    from scalewright.orchestrator.train.system import System

    seen: dict[str, list[torch.Tensor]] = {}
    step_once = System.step_once

    def spy(system: System, batch: torch.Tensor) -> None:
        seen.setdefault(system.model.spec.method, []).append(batch.clone())
        step_once(system, batch)

    monkeypatch.setattr(System, "step_once", spy)
    train(make_run(model={"method": "gpt+"})), train(make_run(model={"method": "angpt"}))
    assert all(torch.equal(*pair) for pair in zip(seen["gpt+"], seen["angpt"], strict=True))


def test_metrics_between_two_records_are_their_mean(make_run: MakeRun, read_journal: ReadJournal) -> None:
    every, third = make_run("every"), make_run("third", settings={"log_every_steps": 3})
    train(every), train(third)
    losses = values(read_journal(every, "metrics"), "loss_nats")
    records = read_journal(third, "metrics")
    assert [record["step"] for record in records] == [*range(3, N_STEPS, 3), N_STEPS]
    expected = [math.fsum(losses[step - 3 : step]) / 3 for step in range(3, N_STEPS, 3)] + [losses[-1]]
    assert values(records, "loss_nats") == pytest.approx(expected, rel=1e-12)


def test_epochs_are_counted_in_whole_windows(make_run: MakeRun, read_journal: ReadJournal, data_dir: Path) -> None:
    run_dir = make_run()
    train(run_dir)
    n_windows = manifest.read(data_dir).train.n_windows(CONTEXT)
    assert read_journal(run_dir, "metrics")[-1]["values"]["epochs"] == pytest.approx(N_STEPS * BATCH / n_windows)


def test_diagnostics_are_written_at_their_tokens_and_change_nothing(make_run: MakeRun, read_journal) -> None:
    model = {"method": "pre-ln", "gate": "gpas", "depth": 2}
    plain = make_run("plain", model=model)
    watched = make_run("watched", model=model, settings={"diagnostics_at": [0, 65, N_STEPS * BATCH_TOKENS]})
    train(plain), train(watched)
    records = read_journal(watched, "layers")
    assert [record["step"] for record in records] == [0, 2, N_STEPS]
    assert [len(record["values"]["activation_rms"]) for record in records] == [2, 2, 2]
    assert records[0]["values"]["gate_alpha"] == [0.0, 0.0]  # a gate starts open
    assert done(plain)["loss_nats"] == done(watched)["loss_nats"]


def test_metrics_also_go_to_the_mirrors_asked_for(
    make_run: MakeRun, read_journal: ReadJournal, monkeypatch, tmp_path: Path
) -> None:
    from scalewright.orchestrator.train import mirrors

    program = "import sys; print('ready', flush=True); open(sys.argv[1], 'w').write(sys.stdin.read())"
    monkeypatch.setattr(mirrors, "PROGRAM", (sys.executable, "-S", "-c", program, str(tmp_path / "got")))
    run_dir, plain = make_run(settings={"mirrors": ["tensorboard"]}), make_run("plain")
    assert train(run_dir) == train(plain) == "completed"
    assert done(run_dir)["loss_nats"] == done(plain)["loss_nats"]
    logged = [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]
    losses = [(one["step"], one["values"]["loss_nats"]) for one in logged if "loss_nats" in one.get("values", {})]
    assert losses == [(r["step"], r["values"]["loss_nats"]) for r in read_journal(run_dir, "metrics")]


def test_evaluations_happen_at_the_first_step_at_or_after_their_tokens(
    make_run: MakeRun, read_journal: ReadJournal
) -> None:
    run_dir = make_run(settings={"evaluate_at": [1, 64, 65, 640]})
    train(run_dir)
    records = read_journal(run_dir, "evaluation")
    assert [record["step"] for record in records] == [1, 2, 10, N_STEPS]
    assert [record["final"] for record in records] == [False, False, False, True]
    assert [record["annealed"] for record in records] == [False, False, False, True]


def test_a_final_loss_at_a_constant_rate_is_not_annealed(make_run: MakeRun, read_journal: ReadJournal) -> None:
    run_dir = make_run(schedule={"name": "constant", "warmup_tokens": 0, "final_fraction": 0.0})
    train(run_dir)
    assert [(r["final"], r["annealed"]) for r in read_journal(run_dir, "evaluation")] == [(True, False)]


def test_a_batch_in_parts_is_the_batch(make_run: MakeRun) -> None:
    whole, parts = make_run("whole"), make_run("parts", settings={"micro_batch_sequences": 2})
    train(whole), train(parts)
    # fp32 sums in another order, over 40 steps
    assert done(parts)["loss_nats"] == pytest.approx(done(whole)["loss_nats"], rel=1e-4)


def test_parts_that_do_not_fit_the_batch_are_refused(make_run: MakeRun) -> None:
    with pytest.raises(UserError, match="expected a divisor of the 4 sequences"):
        train(make_run(settings={"micro_batch_sequences": 3}))


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-pure"])
def test_reduced_precision_trains_close_to_full(make_run: MakeRun, precision: str) -> None:
    full, reduced = make_run("full"), make_run("reduced", precision=precision)
    assert train(full) == train(reduced) == "completed"
    weights = checkpoint.load_latest(reduced, reduced.name)
    expected = torch.bfloat16 if precision == "bf16-pure" else torch.float32
    assert {weight.dtype for weight in weights["model"].values()} == {expected}
    moments = [state["exp_avg"].dtype for state in weights["optimizer"]["state"].values()]
    assert set(moments) == {expected}
    assert done(reduced)["loss_nats"] != done(full)["loss_nats"]
    assert done(reduced)["loss_nats"] == pytest.approx(done(full)["loss_nats"], rel=0.1)  # bf16 has 8 bits


def test_gates_are_clipped_by_their_joint_norm_after_the_global_clip(make_run: MakeRun, training, monkeypatch) -> None:
    from scalewright.orchestrator.train.system import System

    norms = []
    clip = System.clip

    def spy(system: System) -> torch.Tensor:
        norm = clip(system)
        is_gate = {name: role == "gate" for name, role in parameter_roles(system.model).items()}
        gates = [p.grad for name, p in system.model.named_parameters() if is_gate[name]]
        rest = [p.grad for name, p in system.model.named_parameters() if not is_gate[name]]
        norms.append([float(torch.cat([grad.flatten() for grad in grads]).norm()) for grads in (gates, rest)])
        return norm

    monkeypatch.setattr(System, "clip", spy)
    limits = {"clip_norm": 1e-3, "gate_clip_norm": 1e-6}
    model = {"method": "pre-ln", "gate": "gpas", "depth": 2}
    train(make_run(model=model, optimizer=training["optimizer"] | limits))
    gates, rest = zip(*norms[1:], strict=True)
    assert max(gates) <= 1.001e-6  # fp32
    assert max(rest) <= 1.001e-3
    assert max(rest) > 0.9e-3


def test_a_run_that_diverges_ends_as_diverged_with_its_numbers(make_run: MakeRun, read_journal, training) -> None:
    run_dir = make_run(optimizer=training["optimizer"] | {"lr_peak": 1e20, "clip_norm": 0.0})
    assert train(run_dir) == "diverged"
    record = done(run_dir)
    metrics = read_journal(run_dir, "metrics")
    assert record["step"] == metrics[-1]["step"] < N_STEPS
    assert metrics[-1]["values"]["loss_nats"] in ("nan", "inf")
    assert math.isfinite(metrics[0]["values"]["loss_nats"])
    assert "training loss is" in record["reason"]
    assert read_journal(run_dir, "end")[0]["outcome"] == "diverged"
    assert [r["final"] for r in read_journal(run_dir, "evaluation")] == [False]
    assert train(run_dir) == "diverged"  # and is not started again


def test_a_finished_run_is_left_alone(make_run: MakeRun) -> None:
    run_dir = make_run()
    train(run_dir)
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    assert train(run_dir) == "completed"
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before


def test_an_error_is_in_the_journal_and_is_raised(make_run: MakeRun, read_journal: ReadJournal) -> None:
    run_dir = make_run(settings={"data_dir": "/nowhere/data"})
    with pytest.raises(UserError, match="no such file"):
        train(run_dir)
    end = read_journal(run_dir, "end")[0]
    assert end["outcome"] == "failed"
    assert end["reason"].startswith("UserError: /nowhere/data/manifest.json: no such file")
    assert "Traceback" in end["error"]
    assert not (run_dir / "DONE.json").exists()


def test_data_other_than_planned_is_refused(make_run: MakeRun, data_dir: Path) -> None:
    run_dir = make_run()
    record = json.loads((run_dir / "spec.json").read_text())
    record["identity"]["data"]["fingerprint"] = "0" * 16
    (run_dir / "spec.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="is that of run"):
        train(run_dir)
    from scalewright.orchestrator.runs.spec import RunSpec

    record["run_id"] = RunSpec.from_dict(record["identity"]).run_id
    run_dir = run_dir.rename(run_dir.with_name(record["run_id"]))
    (run_dir / "spec.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"was planned with {'0' * 16}"):
        train(run_dir)


class Constant(torch.nn.Module):
    """A model that says the same of every token."""

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, 256)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("sizes", [(7,), (3, 3, 1), (1,) * 7], ids=str)
def test_a_model_that_knows_nothing_has_exactly_the_log_of_the_vocabulary(sizes: tuple[int, ...]) -> None:
    windows = torch.randint(0, 256, (7, CONTEXT + 1))
    result = evaluate(Constant().loss, windows.split(sizes), bytes_per_token=1.0)
    assert result.loss_nats == pytest.approx(math.log(256), rel=2e-7)  # an fp32 mean; a miscount would be off by 1%
    assert result.bits_per_byte == pytest.approx(8, rel=2e-7)
    assert result.n_tokens == 7 * CONTEXT


def test_an_evaluation_weighs_batches_by_their_tokens() -> None:
    windows = torch.arange(5)[:, None].expand(5, CONTEXT + 1)

    def loss(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return tokens.double().mean()

    assert evaluate(loss, windows.split((3, 1, 1)), bytes_per_token=2.0).loss_nats == pytest.approx(2.0, rel=1e-15)
    assert evaluate(loss, windows.split((4, 1)), bytes_per_token=2.0).bits_per_byte == pytest.approx(1 / math.log(2))


def test_signals_are_free_for_others_after_a_run(make_run: MakeRun) -> None:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    train(make_run())
    assert {number: signal.getsignal(number) for number in before} == before
    assert signals.requested() is None


def test_clipping_is_torchs_clipping() -> None:
    from scalewright.orchestrator.train.optimizers import clip_norm

    for limit in (0.1, 1.0, 1e3, None, 0.0):
        ours = [torch.randn(7), torch.randn(3, 5)]
        theirs = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in ours]
        for parameter, gradient in zip(theirs, ours, strict=True):
            parameter.grad = gradient.clone()
        expected = torch.nn.utils.clip_grad_norm_(theirs, limit or math.inf)
        assert torch.equal(clip_norm(ours, limit), expected)
        assert all(torch.equal(gradient, parameter.grad) for gradient, parameter in zip(ours, theirs, strict=True))


def test_a_flattened_group_is_updated_as_its_parameters_would_be() -> None:
    from scalewright.orchestrator.train.optimizers import flatten

    def trained(*, flat: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(size)) for size in ((3, 4), (5,), (2, 2))]
        updated = [flatten(parameters)] if flat else parameters
        optimizer = torch.optim.AdamW(updated, lr=0.1, weight_decay=0.1, fused=True)
        for power in (1, 2, 3):
            sum((parameter**power).sum() for parameter in parameters).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return [parameter.detach().clone() for parameter in parameters]

    assert all(torch.equal(*pair) for pair in zip(trained(flat=True), trained(flat=False), strict=True))
