"""A run's state follows from evidence; doubt is called unknown and never started again by itself."""

from dataclasses import replace

import pytest

from scalewright.orchestrator.jobs.judge import GRACE_S, QUIET_S, Claim, JobFacts, judge
from scalewright.orchestrator.runs.records import Done, Stop
from scalewright.orchestrator.runs.run_files import AttemptFacts, RunFacts

NOW = 1_000_000.0
CLAIM = Claim("s1", "p0000", "c1", "77_3", created=NOW - 10 * GRACE_S, started=True)


def attempt(outcome=None, *, job="77", task=3, tokens=100, error=None, age_s=1.0, number=1):
    place = {"cluster": "c1", "job_id": job, "array_task": task, "restart": 0}
    return AttemptFacts(number, place, tokens, outcome, error, NOW - age_s)


def run(*attempts, done=None, stop=None):
    return RunFacts("r1", done, stop, attempts)


def done(outcome):
    return Done(outcome, 1, 1, 100, 2.0, 3.0, None, 1.0, 1.0, time=5.0, reason="loss rose")


def state(run_facts, job, claim=CLAIM):
    verdict = judge(run_facts, job, claim, NOW)
    return verdict and verdict.state


def test_an_outcome_on_disk_outweighs_everything_else():
    over = run(attempt("completed"), done=done("completed"))
    for job in (JobFacts("ended", "NODE_FAIL"), JobFacts("absent"), JobFacts("running"), JobFacts("unreachable")):
        assert state(over, job) == "completed"
    assert state(run(attempt(), done=done("diverged")), JobFacts("running")) == "diverged"


def test_a_waiting_job_makes_its_runs_queued_with_the_reason():
    verdict = judge(run(), JobFacts("pending", reason="Resources"), CLAIM, NOW)
    assert (verdict.state, verdict.reason) == ("queued", "Resources")
    verdict = judge(run(attempt()), JobFacts("pending", "PREEMPTED", "BeginTime"), CLAIM, NOW)
    assert verdict.state == "queued" and "preempted" in verdict.reason and "BeginTime" in verdict.reason


def test_a_run_is_running_only_when_an_attempt_of_that_job_has_no_end():
    assert state(run(attempt()), JobFacts("running")) == "running"
    assert state(run(), JobFacts("running")) == "queued"
    assert state(run(attempt(job="50")), JobFacts("running")) == "queued"


def test_a_silent_run_is_running_and_says_so():
    verdict = judge(run(attempt(age_s=QUIET_S + 60)), JobFacts("running"), CLAIM, NOW)
    assert verdict.state == "running" and "no sign of life" in verdict.reason


@pytest.mark.parametrize("code", ["TIMEOUT", "NODE_FAIL", "PREEMPTED", "COMPLETED", ""])
def test_an_attempt_that_its_place_killed_goes_on_however_often(code):
    killed = [attempt(tokens=100, number=n) for n in range(1, 6)]
    assert state(run(*killed), JobFacts("ended", code)) == "interrupted"


@pytest.mark.parametrize("code", ["FAILED", "OUT_OF_MEMORY", "EXITED"])
def test_a_death_that_blames_the_run_costs_its_retry(code):
    assert state(run(attempt()), JobFacts("ended", code)) == "interrupted"
    assert state(run(attempt(), attempt(number=2)), JobFacts("ended", code)) == "failed"


def test_errors_cost_nothing_while_tokens_advance():
    advancing = [attempt("failed", tokens=100 * n, error="RuntimeError: x", number=n) for n in range(1, 6)]
    assert state(run(*advancing), JobFacts("ended", "COMPLETED")) == "interrupted"
    stuck = [*advancing, attempt("failed", tokens=500, error="RuntimeError: x", number=6)]
    verdict = judge(run(*stuck), JobFacts("ended", "COMPLETED"), CLAIM, NOW)
    assert (verdict.state, verdict.reason) == ("failed", "RuntimeError: x")


def test_a_users_cancel_is_cancelled_whether_by_the_cluster_or_by_a_stop_file():
    assert state(run(attempt()), JobFacts("ended", "CANCELLED", "cancelled by ann", by_user=True)) == "cancelled"
    assert state(run(), JobFacts("ended", "CANCELLED", by_user=True)) == "cancelled"
    assert state(run(attempt("stopped"), stop=Stop("cancel")), JobFacts("ended", "COMPLETED")) == "cancelled"
    assert state(run(attempt("stopped"), stop=Stop("hold")), JobFacts("running")) == "held"


def test_absence_from_the_queue_proves_nothing_before_the_grace():
    assert state(run(attempt(age_s=1)), JobFacts("absent")) is None
    young = Claim("s1", "p0000", "c1", "77_3", created=NOW - 5, started=False)
    assert state(run(), JobFacts("absent"), young) is None


def test_absence_is_an_end_when_the_files_agree_and_unknown_when_nothing_does():
    assert state(run(attempt("preempted")), JobFacts("absent")) == "interrupted"
    assert state(run(attempt(age_s=GRACE_S + 1)), JobFacts("absent")) == "interrupted"
    never = Claim("s1", "p0000", "c1", "77_3", created=NOW - 10 * GRACE_S, started=False)
    assert state(run(), JobFacts("absent"), never) == "unknown"


def test_contradictions_are_unknown():
    says_both = JobFacts("running", contradiction="squeue says RUNNING, sacct says COMPLETED")
    assert state(run(attempt()), says_both) == "unknown"
    zombie = JobFacts("ended", "NODE_FAIL", ended_at=NOW - 10 * GRACE_S)
    assert state(run(attempt(age_s=1)), zombie) == "unknown"


def test_nothing_is_concluded_from_a_cluster_that_does_not_answer():
    assert state(run(attempt(age_s=GRACE_S * 5)), JobFacts("unreachable")) is None
    assert state(run(), JobFacts("unreachable")) is None
    assert state(run(attempt(age_s=1)), JobFacts("unreachable")) == "running"


def test_a_job_that_failed_before_anything_started_fails_its_runs_with_its_reason():
    fresh = Claim("s1", "p0000", "c1", "77_3", created=NOW - 10, started=False)
    verdict = judge(run(), JobFacts("ended", "FAILED", "exit code 1:0"), fresh, NOW)
    assert verdict.state == "failed" and "exit code 1:0" in verdict.reason


def test_runs_that_a_stopped_batch_left_over_are_held_with_the_message():
    stopped = Claim("s1", "p0000", "c1", "77_3", NOW - 10, batch_stopped="the same error in 5 runs", started=True)
    verdict = judge(run(), JobFacts("ended", "COMPLETED"), stopped, NOW)
    assert (verdict.state, verdict.reason) == ("held", "the same error in 5 runs")


def test_a_run_that_is_ended_before_it_comes_a_token_further_fails_instead_of_looping_for_ever():
    stuck = [attempt("preempted", tokens=100, number=n) for n in range(1, 8)]
    verdict = judge(run(*stuck), JobFacts("ended", "COMPLETED"), CLAIM, NOW)
    assert verdict.state == "failed" and "time limit too short" in verdict.reason
    advancing = [attempt("preempted", tokens=100 * n, number=n) for n in range(1, 8)]
    assert state(run(*advancing), JobFacts("ended", "COMPLETED")) == "interrupted"


def test_a_requeued_attempt_keeps_its_run_queued_not_dead():
    verdict = judge(run(attempt("preempted")), JobFacts("pending", "REQUEUED", "BeginTime"), CLAIM, NOW)
    assert verdict.state == "queued"


def test_errors_are_forgiven_by_any_attempt_that_brought_the_run_further():
    mixed = [attempt("failed", tokens=100, error="x", number=1), attempt("preempted", tokens=500, number=2)]
    once_more = [*mixed, attempt("failed", tokens=500, error="x", number=3)]
    assert state(run(*once_more), JobFacts("ended", "COMPLETED")) == "interrupted"
    twice_more = [*once_more, attempt("failed", tokens=500, error="x", number=4)]
    assert state(run(*twice_more), JobFacts("ended", "COMPLETED")) == "failed"


@pytest.mark.parametrize(("allowed", "found"), [(0, "failed"), (1, "interrupted"), (2, "interrupted")])
def test_the_budget_of_errors_is_the_one_the_run_was_submitted_with(allowed, found):
    one = replace(run(attempt("failed", error="x")), errors_allowed=allowed)
    assert state(one, JobFacts("ended", "COMPLETED")) == found


@pytest.mark.parametrize(("after_s", "found"), [(GRACE_S - 1, "interrupted"), (GRACE_S + 1, "unknown")])
def test_a_last_word_within_the_grace_after_the_end_of_a_job_is_no_contradiction(after_s, found):
    """Clocks of nodes differ, and a file system shows a write late."""
    over = JobFacts("ended", "TIMEOUT", ended_at=NOW - 10 * GRACE_S)
    assert state(run(attempt(age_s=10 * GRACE_S - after_s)), over) == found


AROUND = (GRACE_S - 1, GRACE_S + 1)


def test_the_grace_of_silence_is_counted_from_the_newest_sign_and_from_the_claim():
    silent = [state(run(attempt(age_s=age)), JobFacts("absent")) for age in AROUND]
    assert silent == [None, "interrupted"]
    fresh = replace(CLAIM, created=NOW - 1)
    assert state(run(attempt(age_s=10 * GRACE_S)), JobFacts("absent"), fresh) is None
    assert [state(run(attempt(age_s=age)), JobFacts("unreachable")) for age in AROUND] == ["running", None]


def test_a_job_of_another_cluster_with_the_same_number_is_another_job():
    assert state(run(attempt()), JobFacts("running"), replace(CLAIM, cluster="c2")) == "queued"
    assert state(run(attempt(task=4)), JobFacts("running")) == "queued"
