"""A mirror gets what the journal gets, and cannot fail, block or change a run whatever it does."""

import json
import threading
import time

import pytest

from orchestrator.journal import Journal
from orchestrator.train import mirrors
from orchestrator.train.mirrors import mirrored


class Recording:
    """What a Lightning logger looks like from here."""

    def __init__(self):
        self.logged, self.parameters, self.status = [], None, None

    def log_hyperparams(self, parameters):
        self.parameters = parameters

    def log_metrics(self, values, step):
        self.logged.append((step, values))

    def finalize(self, status):
        self.status = status


def train(tmp_path, names):
    """Log as a run does; return the journal's records and the seconds that it took."""
    journal = Journal.open(tmp_path, {"run_id": "r" * 16, "resume_step": 0, "resume_tokens": 0})
    began = time.monotonic()
    with mirrored(journal, [{"name": name} for name in names], {"width": 64}) as both:
        for step in range(1, 4):
            both.metrics(step, step * 10, {"loss_nats": 1.0 / step})
        both.evaluation(3, 30, {"loss_nats": 2.0, "bits_per_byte": 2.9}, n_tokens=99, final=True)
        both.end("completed", 3, 30)
    journal.close()
    return [json.loads(line) for line in journal.path.read_text().splitlines()], time.monotonic() - began


def test_a_mirror_gets_every_metric_and_evaluation(tmp_path, monkeypatch):
    logger = Recording()
    monkeypatch.setitem(mirrors.LOGGERS, "tensorboard", lambda *_: logger)
    records, _ = train(tmp_path, ["tensorboard"])
    assert [record["type"] for record in records] == ["start", "metrics", "metrics", "metrics", "evaluation", "end"]
    assert logger.logged[0] == (1, {"loss_nats": 1.0, "tokens": 10})
    assert logger.logged[-1] == (3, {"validation/loss_nats": 2.0, "validation/bits_per_byte": 2.9})
    assert (logger.parameters, logger.status) == ({"width": 64}, "success")


def test_without_mirrors_the_journal_is_the_journal(tmp_path):
    journal = Journal.open(tmp_path, {"run_id": "r" * 16})
    with mirrored(journal, [], {}) as same:
        assert same is journal
    journal.close()


def missing(*_):
    raise ModuleNotFoundError("No module named 'mlflow'")


def leaving(*_):
    raise SystemExit(1)


class Failing(Recording):
    def log_metrics(self, values, step):
        raise ConnectionError("no network")


class Hanging(Recording):
    def log_metrics(self, values, step):
        threading.Event().wait()


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        (missing, "ModuleNotFoundError: No module named 'mlflow'"),
        (leaving, "SystemExit: 1"),
        (lambda *_: Failing(), "ConnectionError: no network"),
        (lambda *_: Hanging(), "did not finish in time"),
    ],
)
def test_a_mirror_that_fails_or_hangs_costs_the_run_nothing(tmp_path, monkeypatch, capsys, factory, complaint):
    monkeypatch.setattr(mirrors.Mirror.close, "__defaults__", (0.5,))
    good = Recording()
    monkeypatch.setitem(mirrors.LOGGERS, "mlflow", factory)
    monkeypatch.setitem(mirrors.LOGGERS, "wandb", lambda *_: good)
    records, seconds = train(tmp_path, ["mlflow", "wandb"])
    assert len(records) == 6 and records[-1]["outcome"] == "completed"
    assert len(good.logged) == 4
    assert seconds < 5
    assert complaint in capsys.readouterr().err


def test_a_slow_mirror_drops_records_instead_of_making_the_run_wait(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mirrors, "MOST_WAITING", 2)
    monkeypatch.setattr(mirrors.Mirror.close, "__defaults__", (0.1,))
    monkeypatch.setitem(mirrors.LOGGERS, "wandb", lambda *_: Hanging())
    journal = Journal.open(tmp_path, {"run_id": "r" * 16})
    began = time.monotonic()
    with mirrored(journal, [{"name": "wandb"}], {}) as both:
        for step in range(1000):
            both.metrics(step, step, {"loss_nats": 1.0})
    journal.close()
    assert time.monotonic() - began < 5
    assert len(journal.path.read_text().splitlines()) == 1001
    assert "records were dropped" in capsys.readouterr().err


def test_the_mirrors_that_a_file_may_name_are_those_there_are():
    from orchestrator.config import MIRRORS

    assert set(MIRRORS) == set(mirrors.LOGGERS)
