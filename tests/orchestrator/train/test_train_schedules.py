"""Schedules, parameter groups, the divergence rule and the cut into chunks: pure functions, no torch."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.runs.training_spec import DivergenceSpec, ScheduleSpec
from scalewright.orchestrator.train.divergence import WINDOW_STEPS, Monitor
from scalewright.orchestrator.train.groups import DECAY, group_parameters
from scalewright.orchestrator.train.schedules import SCHEDULES, Schedule, read_schedule

N_TOKENS = 1000


def schedule(name: str, warmup: int = 100, final: float = 0.1, decay: int = 200) -> Schedule:
    return Schedule(name, N_TOKENS, warmup, final, decay)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_warm_up_rises_linearly_to_the_peak(name: str) -> None:
    assert [schedule(name).fraction(tokens) for tokens in (0, 25, 50, 99)] == [0, 0.25, 0.5, 0.99]
    assert schedule(name).fraction(100) == 1


@pytest.mark.parametrize("name", SCHEDULES)
@given(tokens=st.integers(0, N_TOKENS - 1))
def test_after_the_warm_up_a_rate_never_rises_and_stays_above_the_floor(name: str, tokens: int) -> None:
    here, after = schedule(name, warmup=0).fraction(tokens), schedule(name, warmup=0).fraction(tokens + 1)
    assert 0.1 - 1e-12 <= after <= here <= 1  # rounding of cos at its ends


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "constant"])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_a_schedule_ends_at_its_final_fraction(name: str, final: float) -> None:
    assert schedule(name, final=final).fraction(N_TOKENS) == pytest.approx(final, abs=1e-12)


BY_HAND = [
    ("cosine", 550, 0.55),  # half way from 100 to 1000: the middle of 1 and 0.1
    ("cosine", 325, 0.1 + 0.9 * 0.5 * (1 + math.sqrt(0.5))),
    ("linear", 550, 0.55),
    ("linear", 775, 0.325),
    ("wsd", 800, 1.0),
    ("wsd", 850, 0.1 + 0.9 * 0.5),  # a quarter of the decay: 1 - sqrt(1/4)
    ("constant", 999, 1.0),
]


@pytest.mark.parametrize(("name", "tokens", "expected"), BY_HAND)
def test_a_schedule_has_the_values_of_its_formula(name: str, tokens: int, expected: float) -> None:
    assert schedule(name).fraction(tokens) == pytest.approx(expected, rel=1e-12)


def test_only_a_rate_that_comes_down_ends_annealed() -> None:
    ends = {name: schedule(name).ends_annealed for name in SCHEDULES}
    assert ends == {"cosine": True, "linear": True, "wsd": True, "constant": False}
    assert not schedule("wsd", decay=0).ends_annealed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "step"}, "cosine, linear, wsd, constant"),
        (
            {"name": "wsd", "warmup_tokens": 600, "decay_tokens": 600},
            "warm-up and decay take 1,200 tokens of a run of 1,000",
        ),
        ({"warmup_tokens": N_TOKENS}, "a warm-up of 1,000 tokens in a run of 1,000"),
        ({"name": "wsd"}, "needs a decay above 0"),
        ({"name": "cosine", "decay_tokens": 100}, "takes no decay"),
    ],
)
def test_an_unknown_or_impossible_schedule_is_refused(changes: dict[str, Any], said: str) -> None:
    record = {"name": "cosine", "warmup_tokens": 0, "final_fraction": 0.0} | changes
    with pytest.raises(UserError, match=said):
        read_schedule(ScheduleSpec(**record), N_TOKENS)


ROLES = {"e": "embedding", "q": "attention", "g": "norm-gain", "m": "mlp", "h": "head", "t": "gate"}
PARAMETERS = {name: [name] for name in ROLES}  # any objects
DECAYED = {"matrices": "qm", "matrices+embeddings": "eqmh", "all": "eqgmht", "none": ""}


@pytest.mark.parametrize("decay", DECAY)
def test_groups_are_a_partition_with_the_decayed_roles_together(decay: str) -> None:
    groups = group_parameters(PARAMETERS.items(), ROLES, decay=decay, weight_decay=0.1)
    names = {group["weight_decay"]: "".join(parameter[0] for parameter in group["params"]) for group in groups}
    assert names.get(0.1, "") == DECAYED[decay]
    assert sorted("".join(names.values())) == sorted(ROLES)


def test_a_parameter_without_a_role_or_twice_is_a_bug_that_is_caught() -> None:
    with pytest.raises(AssertionError, match="roles do not cover"):
        group_parameters([*PARAMETERS.items(), ("new", [])], ROLES, decay="all", weight_decay=0.1)
    with pytest.raises(AssertionError, match="two names"):
        group_parameters((PARAMETERS | {"e": PARAMETERS["h"]}).items(), ROLES, decay="all", weight_decay=0.1)


def test_an_unknown_set_of_decayed_roles_is_refused() -> None:
    with pytest.raises(UserError, match="matrices, matrices.embeddings, all, none"):
        group_parameters(PARAMETERS.items(), ROLES, decay="some", weight_decay=0.1)


def steps_until_diverged(losses: list[float], n_steps: int = 1000, patience: float = 0.1) -> int | None:
    monitor = Monitor.of(DivergenceSpec(rise_nats=1.0, patience=patience), n_steps)
    return next((step for step, loss in enumerate(losses, 1) if monitor.why_diverged(loss)), None)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_divergence_at_once(loss: float) -> None:
    assert steps_until_diverged([3.0, 2.9, loss, 2.8]) == 3


def test_a_loss_that_stays_high_for_its_patience_is_divergence() -> None:
    at = steps_until_diverged([3.0] * 96 + [4.5] * 904)
    assert at == 96 + 7 * WINDOW_STEPS  # the first whole number of windows of at least 100 steps


def test_a_spike_that_comes_back_is_no_divergence() -> None:
    assert steps_until_diverged([3.0] * 96 + [9.0] * 80 + [3.0] * 400 + [9.0] * 80 + [3.0] * 344) is None


def test_a_noisy_loss_that_falls_is_no_divergence() -> None:
    assert steps_until_diverged([5.0 - step / 500 + 0.9 * (-1) ** step for step in range(1000)]) is None


def test_a_rise_less_than_the_rule_says_is_no_divergence() -> None:
    assert steps_until_diverged([3.0] * 96 + [3.99] * 904) is None
    assert steps_until_diverged([3.0] * 96 + [4.0] * 904) is None  # a rise of exactly as much


def test_a_monitor_goes_on_from_its_state_as_if_never_stopped() -> None:
    losses = [3.0] * 101 + [4.5] * 899
    monitor = Monitor.of(DivergenceSpec(rise_nats=1.0, patience=0.1), 1000)
    stopped = 133
    assert not any(monitor.why_diverged(loss) for loss in losses[:stopped])
    resumed = Monitor.of(DivergenceSpec(rise_nats=1.0, patience=0.1), 1000)
    resumed.restore(monitor.state())
    rest = next(step for step, loss in enumerate(losses[stopped:], stopped + 1) if resumed.why_diverged(loss))
    assert rest == steps_until_diverged(losses)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_read_with_every_number_of_its_record(name: str) -> None:
    decay = 200 if name == "wsd" else None
    record = ScheduleSpec(name=name, warmup_tokens=100, final_fraction=0.3, decay_tokens=decay)
    assert read_schedule(record, N_TOKENS) == Schedule(name, N_TOKENS, 100, 0.3, decay or 0)
