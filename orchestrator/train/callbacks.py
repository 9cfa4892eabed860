"""What happens between chunks of steps, one callback each: metrics, evaluations, diagnostics, checkpoints, the end."""

import math
import time
from collections.abc import Callable, Mapping

import torch
from lightning.pytorch import Callback, Trainer

from scalewright.models.diagnostics import collect
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.ownership import Ownership
from scalewright.orchestrator.runs.trunk import trunk_dir, trunk_of
from scalewright.orchestrator.talk import say
from scalewright.orchestrator.train import checkpoint
from scalewright.orchestrator.train.assignment import Assignment
from scalewright.orchestrator.train.evaluate import Validation
from scalewright.orchestrator.train.progress import Clock
from scalewright.orchestrator.train.system import System
from scalewright.orchestrator.train.trunk import steps_kept

MOST_UNSEEN_STEPS = 64  # however seldom is logged, a run that has diverged is seen to have


class Recorder(Callback):
    """Reads losses from the device every `every_steps` and writes the mean of each such interval to the journal.

    Reads them earlier at `marks` (steps at which something else happens), before a checkpoint and at a stop.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        every_steps: int,
        marks: frozenset[int],
        is_checkpoint_due: Callable[[], bool],
        *,
        epoch_tokens: int,
    ) -> None:
        self.journal, self.clock, self.every_steps, self.epoch_tokens = journal, clock, every_steps, epoch_tokens
        self.marks, self.is_checkpoint_due = marks, is_checkpoint_due

    def on_train_start(self, trainer: Trainer, system: System) -> None:
        """Start the clock of the first lap."""
        self.clock.lap_s()

    def on_train_batch_end(self, trainer: Trainer, system: System, *_: object) -> None:
        """Read what waits where it is time to, and note a sign of life."""
        progress = system.progress
        n_waiting = len(system.recent)
        is_needed = progress.step in self.marks or progress.outcome is not None or self.is_checkpoint_due()
        if n_waiting and (n_waiting >= min(self.every_steps, MOST_UNSEEN_STEPS) or is_needed):
            self.record(system)
        self.journal.heartbeat(progress.step, progress.tokens)

    def record(self, system: System) -> None:
        """Look at the steps made since the last time: write their metrics, and say whether the run diverged."""
        progress, n_steps = system.progress, len(system.recent)
        losses = torch.stack([loss for loss, _ in system.recent]).tolist()  # waits for the device
        norms = torch.stack([norm for _, norm in system.recent]).tolist()
        system.recent.clear()
        lap_s = self.clock.lap_s()
        progress.train_wall_s += lap_s
        speed = {"tokens_per_s": n_steps * progress.batch_tokens / lap_s, "step_s": lap_s / n_steps}
        speed["epochs"] = progress.tokens / self.epoch_tokens
        first, last = progress.step - n_steps + 1, progress.step
        for step, loss, norm in zip(range(first, last + 1), losses, norms, strict=True):
            progress.unlogged.append(loss)
            reason = progress.monitor.why_diverged(loss)
            if step % self.every_steps == 0 or step == progress.n_steps or reason:
                self.write(system, step, norm, speed if step > last - self.every_steps else {})
            if reason:
                progress.step = step
                return progress.finish("diverged", reason)
        return None

    def write(self, system: System, step: int, norm: float, speed: dict[str, float]) -> None:
        """Write the mean loss since the last record, with the learning rate of step `step` and its gradient norm."""
        progress = system.progress
        tokens = step * progress.batch_tokens
        loss = math.fsum(progress.unlogged) / len(progress.unlogged) if _all_finite(progress.unlogged) else math.nan
        progress.unlogged.clear()
        rate = system.rate(tokens - progress.batch_tokens)
        self.journal.metrics(step, tokens, {"loss_nats": loss, "lr": rate, "grad_norm": norm, **speed})


def _all_finite(values: list[float]) -> bool:
    return all(map(math.isfinite, values))


class Ending(Callback):
    """Notes why a run ends before its last step; the first to look, so that all others see the same."""

    def __init__(self, why_stop: Callable[[], str | None]) -> None:
        self.why_stop = why_stop

    def on_train_batch_end(self, trainer: Trainer, system: System, *_: object) -> None:
        """Set the outcome where the job or the run was asked to stop; the last step ends by itself."""
        if system.progress.step < system.progress.n_steps and (outcome := self.why_stop()):
            system.progress.finish(outcome, REASONS[outcome])


REASONS = {"preempted": "the job was asked to end by a signal", "stopped": "the run was asked to stop by its stop file"}


class Evaluator(Callback):
    """Measures the validation loss at given steps, at the end, and where the run diverged; other texts at the end."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        validation: Validation,
        at_steps: frozenset[int],
        corpora: Mapping[str, Validation],
    ) -> None:
        self.journal, self.clock, self.validation, self.at_steps = journal, clock, validation, at_steps
        self.corpora = corpora

    def on_train_batch_end(self, trainer: Trainer, system: System, *_: object) -> None:
        """Evaluate where this step is one to evaluate; not counted as training time."""
        progress = system.progress
        is_final = progress.step == progress.n_steps and progress.outcome is None
        if not (is_final or progress.step in self.at_steps or progress.outcome == "diverged"):
            return
        with self.clock.paused(), trainer.precision_plugin.forward_context():
            result = self.validation.evaluate(system.model.loss, system.device)  # not compiled for it
        values = {"loss_nats": result.loss_nats, "bits_per_byte": result.bits_per_byte}
        progress.final = values
        annealed = is_final and system.recipe.schedule.ends_annealed
        place = (progress.step, progress.tokens, values)
        where = f"{self.journal.path.parent.name}: step {progress.step} of {progress.n_steps}"
        say(f"{where}, validation loss {result.loss_nats:.4f} nats")
        self.journal.evaluation(*place, n_tokens=result.n_tokens, final=is_final, annealed=annealed)
        for name, text in self.corpora.items() if is_final else ():
            with self.clock.paused(), trainer.precision_plugin.forward_context():
                other = text.evaluate(system.model.loss, system.device)
            place = (
                progress.step,
                progress.tokens,
                {"loss_nats": other.loss_nats, "bits_per_byte": other.bits_per_byte},
            )
            self.journal.evaluation(*place, n_tokens=other.n_tokens, final=True, annealed=annealed, split=name)


class Diagnostician(Callback):
    """Writes what each layer does on the first validation batch, at given steps."""

    def __init__(self, journal: Journal, clock: Clock, validation: Validation, at_steps: frozenset[int]) -> None:
        self.journal, self.clock, self.validation, self.at_steps = journal, clock, validation, at_steps

    def on_train_start(self, trainer: Trainer, system: System) -> None:
        """Write the layers at initialisation, not after a resume."""
        if system.progress.step == 0 and 0 in self.at_steps:
            self.write(trainer, system)

    def on_train_batch_end(self, trainer: Trainer, system: System, *_: object) -> None:
        """Write the layers where this step is one to look at."""
        if system.progress.step in self.at_steps:
            self.write(trainer, system)

    def write(self, trainer: Trainer, system: System) -> None:
        """Write the layers now; not counted as training time."""
        progress = system.progress
        with self.clock.paused(), trainer.precision_plugin.forward_context():
            batch = self.validation.first_batch(system.device)
            self.journal.layers(progress.step, progress.tokens, collect(system.model, batch[:, :-1], batch[:, 1:]))


class Follower(Callback):
    """All that a rank besides the first does between chunks: hear whether to go on."""

    def on_train_batch_end(self, trainer: Trainer, system: System, *_: object) -> None:
        """Stop where the first rank stops."""
        system.recent.clear()
        trainer.should_stop = system.ranks.agree(False)


class Warmer(Callback):
    """Compiles the step before the clock runs, on a batch that trains nothing."""

    def on_train_start(self, trainer: Trainer, system: System) -> None:
        """Compile by one forward and backward through zeros; gradients are dropped."""
        if not system.recipe.compile:
            return
        context = system.model.spec.context
        n_sequences = system.progress.batch_tokens // context // system.ranks.size
        batch = torch.zeros(n_sequences, context + 1, dtype=torch.int64, device=system.device)
        with trainer.precision_plugin.train_step_context():
            system.backward_through(batch)
        system.zero_grad()


class Keeper(Callback):
    """Writes checkpoints: every so often, when the run is asked to stop and at the end. Ends a fenced attempt."""

    def __init__(
        self, job: Assignment, owner: Ownership, journal: Journal, clock: Clock, *, wall_s_before: float
    ) -> None:
        self.job, self.owner, self.journal, self.clock, self.wall_s_before = job, owner, journal, clock, wall_s_before
        self.last_save = time.monotonic()
        self.complained = False
        self.keep_at, self.trunk = steps_kept(job), trunk_of(job.spec)

    def wall_s(self) -> float:
        """Return the seconds of this attempt and of those before it up to the checkpoint it began from."""
        return self.wall_s_before + self.clock.wall_s()

    def on_train_batch_end(self, trainer: Trainer, system: System, *_: object) -> None:
        """Save where it is time to, and let all ranks agree whether to go on."""
        progress = system.progress
        ends = progress.step == progress.n_steps or progress.outcome in ("preempted", "stopped")
        if progress.outcome != "diverged" and not system.recent and (ends or self.is_due()):
            self.save(system)
        if progress.step in self.keep_at and progress.outcome != "diverged" and not system.recent:
            self.leave(system)
        trainer.should_stop = system.ranks.agree(progress.outcome is not None)

    def is_due(self) -> bool:
        """Tell whether the last checkpoint is older than the settings allow."""
        return time.monotonic() - self.last_save >= self.job.settings.checkpoint_every_s

    def save(self, system: System) -> None:
        """Write a checkpoint, or end a fenced attempt: another one writes there now."""
        progress = system.progress
        if not self.owner.holds():
            progress.outcome, progress.reason = "fenced", "another attempt has taken over this run"
            return
        with self.clock.paused():
            self.write(system)
        self.last_save = time.monotonic()

    def leave(self, system: System) -> None:
        """Leave the state to the shorter runs of the trunk; without it, on a full disk, they train on their own."""
        assert self.trunk is not None
        path = trunk_dir(self.job.run_dir, self.trunk.trunk_id) / checkpoint.name_of(system.progress.step)
        with self.clock.paused():
            try:
                if not path.exists():
                    checkpoint.write(path, self.record(system) | {"run_id": self.trunk.trunk_id})
            except OSError as trouble:
                self.complain(trouble)

    def record(self, system: System) -> dict[str, object]:
        """Return what a checkpoint holds now."""
        progress = system.progress
        return {
            "run_id": self.job.run_id,
            "step": progress.step,
            "tokens": progress.tokens,
            "model": system.model.state_dict(),
            "optimizer": system.optimizer.state_dict(),
            "progress": progress.state(self.wall_s()),
        }

    def complain(self, trouble: OSError) -> None:
        """Say once that there is no room for checkpoints."""
        if not self.complained:
            say(f"scalewright: {self.job.run_dir}: no checkpoint written ({trouble.strerror})")
        self.complained = True

    def write(self, system: System) -> None:
        """Write one checkpoint; a full disk costs the checkpoint, not the run, and is said once."""
        progress = system.progress
        try:
            path, n_bytes = checkpoint.save(self.job.run_dir, self.record(system))
        except OSError as trouble:
            self.complain(trouble)
            return
        self.journal.checkpoint(progress.step, progress.tokens, path.relative_to(self.job.run_dir), n_bytes)
        self.journal.sync_to_disk()
