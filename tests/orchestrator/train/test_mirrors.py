"""A mirror gets what the journal gets, and cannot fail, block or change a run whatever it does."""

import fcntl
import importlib.util
import io
import json
import sqlite3
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.train import mirror_process, mirrors
from scalewright.orchestrator.train.mirrors import mirrored

N_STEPS = 30


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


class Failing(Recording):
    def log_metrics(self, values, step):
        raise ConnectionError("no network")


class FailingLast(Recording):
    def finalize(self, status):
        raise OSError("No space left on device")


class Hanging(Recording):
    def log_metrics(self, values, step):
        threading.Event().wait()


def missing(*_):
    raise ModuleNotFoundError("No module named 'mlflow'")


def leaving(*_):
    raise SystemExit(1)


def serve(run_dir, names, records, status="success"):
    """Do what the process beside a run does, in this one; return how often it said that it is ready."""
    first = {"run_dir": str(run_dir), "parameters": {"width": 64}, "mirrors": [{"name": name} for name in names]}
    lines = [first, *({"step": step, "values": values} for step, values in records), {"status": status}]
    ready = threading.Event()
    mirror_process.serve(io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines)), ready.set)
    assert ready.wait(100)


RECORDS = [(step, {"loss_nats": 1.0 / step}) for step in range(1, 4)]


def test_a_logger_gets_every_record_and_how_the_run_ended(tmp_path, monkeypatch, capsys):
    logger = Recording()
    monkeypatch.setitem(mirror_process.LOGGERS, "tensorboard", lambda *_: logger)
    serve(tmp_path, ["tensorboard"], RECORDS, "failed")
    assert (logger.logged, logger.parameters, logger.status) == (RECORDS, {"width": 64}, "failed")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        (missing, "ModuleNotFoundError: No module named 'mlflow'"),
        (leaving, "SystemExit: 1"),
        (lambda *_: Failing(), "ConnectionError: no network"),
        (lambda *_: FailingLast(), "OSError: No space left on device"),
        (lambda *_: Hanging(), "did not finish in time"),
    ],
)
def test_a_logger_that_fails_or_hangs_says_one_line_and_costs_the_others_nothing(
    tmp_path, monkeypatch, capsys, factory, complaint
):
    monkeypatch.setattr(mirror_process, "LAST_WAIT_S", 1.0 if complaint == "did not finish in time" else 100.0)
    good = Recording()
    monkeypatch.setitem(mirror_process.LOGGERS, "tensorboard", factory)
    monkeypatch.setitem(mirror_process.LOGGERS, "wandb2", lambda *_: good)
    began = time.monotonic()
    serve(tmp_path, ["tensorboard", "wandb2"], RECORDS)
    assert time.monotonic() - began < 100
    assert good.logged == RECORDS and good.status == "success"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and complaint in said[0] and said[0].startswith("scalewright: mirror tensorboard: ")


def test_a_slow_logger_loses_records_and_they_are_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mirror_process, "MOST_WAITING", 2)
    monkeypatch.setattr(mirror_process, "LAST_WAIT_S", 0.1)
    monkeypatch.setitem(mirror_process.LOGGERS, "wandb", lambda *_: Hanging())
    serve(tmp_path, ["wandb"], [(step, {"loss_nats": 1.0}) for step in range(1000)])
    assert "(1,000 of 1,000 records missing)" in capsys.readouterr().err


def log_a_run(run_dir, names, outcome="completed"):
    """Log as a run does; return the journal's records and the seconds that it took."""
    run_dir.mkdir(parents=True, exist_ok=True)
    journal = Journal.open(run_dir, {"run_id": "r" * 16, "resume_step": 0, "resume_tokens": 0})
    began = time.monotonic()
    with mirrored(journal, [{"name": name} for name in names], {"model": {"width": 64}}) as both:
        for step in range(1, N_STEPS + 1):
            both.metrics(step, step * 10, {"loss_nats": 1.0 / step, "lr": 1e-3})
        both.evaluation(N_STEPS, 10 * N_STEPS, {"loss_nats": 2.0, "bits_per_byte": 2.9}, n_tokens=99, final=True)
        both.end(outcome, N_STEPS, 10 * N_STEPS)
    journal.close()
    return [json.loads(line) for line in journal.path.read_text().splitlines()], time.monotonic() - began


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Let another program stand beside the run: Python text."""

    def stand_in(text):
        file = tmp_path / "beside.py"
        file.write_text(textwrap.dedent(text))
        monkeypatch.setattr(mirrors, "PROGRAM", (sys.executable, "-S", str(file)))

    return stand_in


def test_the_process_beside_a_run_gets_every_metric_and_evaluation(tmp_path, program):
    program(f"import sys; print('ready', flush=True); open({str(tmp_path / 'got')!r}, 'w').write(sys.stdin.read())")
    records, _ = log_a_run(tmp_path / "run", ["tensorboard"])
    assert [record["type"] for record in records] == ["start", *["metrics"] * N_STEPS, "evaluation", "end"]
    got = [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]
    assert got[0]["mirrors"] == [{"name": "tensorboard"}] and got[0]["parameters"] == {"model": {"width": 64}}
    assert got[1] == {"step": 1, "values": {"loss_nats": 1.0, "lr": 1e-3, "tokens": 10.0}}
    assert got[-2] == {"step": N_STEPS, "values": {"validation/loss_nats": 2.0, "validation/bits_per_byte": 2.9}}
    assert got[-1] == {"status": "success"} and len(got) == N_STEPS + 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import sys; sys.exit(3)", "their process ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "their process ended with exit code -9"),
        ("import time; print('ready', flush=True); time.sleep(999)", "did not finish in time"),
        ("import time; time.sleep(999)", "did not finish in time"),
    ],
)
def test_a_process_that_dies_or_hangs_costs_the_run_nothing(tmp_path, monkeypatch, capfd, program, text, complaint):
    for name in ("FIRST_WAIT_S", "LAST_WAIT_S"):  # one that ends needs no limit, however busy the machine is
        monkeypatch.setattr(mirrors, name, 0.5 if "sleep" in text else 100.0)
    monkeypatch.setattr(mirrors, "MOST_BYTES", 1000)
    monkeypatch.setattr(mirrors, "PIPE_BYTES", 4096)
    program(text)
    records, seconds = log_a_run(tmp_path / "run", ["tensorboard", "mlflow"])
    assert len(records) == N_STEPS + 3 and records[-1]["outcome"] == "completed"
    assert seconds < 200
    said = capfd.readouterr().err.splitlines()
    assert any(complaint in line and line.startswith("scalewright: mirrors (tensorboard, mlflow): ") for line in said)


def test_a_run_that_was_told_to_stop_waits_only_shortly(tmp_path, monkeypatch, program):
    monkeypatch.setattr(mirrors, "SHORT_WAIT_S", 0.2)
    monkeypatch.setattr(mirrors, "LAST_WAIT_S", 900.0)
    program("import time; print('ready', flush=True); time.sleep(999)")
    _, seconds = log_a_run(tmp_path / "run", ["wandb"], "preempted")
    assert seconds < 200 < mirrors.LAST_WAIT_S


def test_a_process_that_cannot_be_started_is_said_once(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(mirrors, "PROGRAM", (str(tmp_path / "none"),))
    records, _ = log_a_run(tmp_path / "run", ["wandb"])
    assert len(records) == N_STEPS + 3
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_logger_whose_package_is_missing_is_named_by_the_real_process(tmp_path, monkeypatch, capfd):
    hidden = tmp_path / "hidden" / "tensorboard.py"  # shadows the package where it is installed
    hidden.parent.mkdir()
    hidden.write_text("raise ModuleNotFoundError('no tensorboard here')")
    hidden.with_name("tensorboardX.py").write_text("raise ModuleNotFoundError('no tensorboardX here')")
    hidden.with_name("sitecustomize.py").write_text(
        "import sys; sys.modules['torch.utils.tensorboard'] = sys.modules['tensorboard'] = None"
    )
    monkeypatch.setenv("PYTHONPATH", str(hidden.parent))
    records, _ = log_a_run(tmp_path / "run", ["tensorboard"])
    assert len(records) == N_STEPS + 3
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("scalewright: ")]
    assert len(said) == 1 and said[0].startswith("scalewright: mirror tensorboard: ModuleNotFoundError")


def test_without_mirrors_the_journal_is_the_journal(tmp_path):
    journal = Journal.open(tmp_path, {"run_id": "r" * 16})
    with mirrored(journal, [], {}) as same:
        assert same is journal
    journal.close()


def test_the_mirrors_that_a_file_may_name_are_those_there_are():
    from scalewright.orchestrator.config.experiment import MIRRORS

    assert set(MIRRORS) == set(mirror_process.LOGGERS)


def points_of_tensorboard(run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "mirrors" / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("loss_nats")]


def points_of_mlflow(run_dir):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run_dir.parent.parent}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("scalewright").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["model/width"] == "64"
    return sorted((one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss_nats"))


def points_of_wandb(run_dir):
    """W&B has no public reader for its file; its values stand there as decimal text."""
    (file,) = (run_dir / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    return [(step, 1.0 / step) for step in range(1, N_STEPS + 1) if str(1.0 / step).encode() in content]


def test_one_run_at_a_time_makes_the_tables_of_a_file(tmp_path):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with mirror_process.alone(uri), (tmp_path / "mlflow.db.lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with mirror_process.alone("http://127.0.0.1:9"), mirror_process.alone(uri):
        pass


PATIENT = "from scalewright.orchestrator.train import mirror_process as it; it.LAST_WAIT_S = 300.0; it.main()"


@pytest.fixture
def patient(monkeypatch):
    """No limit that a busy machine could pass: MLflow alone takes 20 s to import there."""
    monkeypatch.setattr(mirrors, "PROGRAM", (sys.executable, "-c", PATIENT))
    for name in ("FIRST_WAIT_S", "LAST_WAIT_S"):
        monkeypatch.setattr(mirrors, name, 300.0)


def test_runs_that_start_together_share_one_mlflow_file(tmp_path, capfd, patient):
    if importlib.util.find_spec("mlflow") is None:
        pytest.skip("mlflow is not installed (pip install mlflow)")
    with ThreadPoolExecutor() as both:
        list(both.map(lambda name: log_a_run(tmp_path / "runs" / name, ["mlflow"]), ["a", "b"]))
    assert "scalewright:" not in capfd.readouterr().err
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as stored:
        counts = stored.execute("SELECT count(*) FROM metrics WHERE key = 'loss_nats' GROUP BY run_uuid").fetchall()
    assert counts == [(N_STEPS,), (N_STEPS,)]


READERS = {"tensorboard": points_of_tensorboard, "mlflow": points_of_mlflow, "wandb": points_of_wandb}


@pytest.mark.filterwarnings("ignore")  # of what MLflow calls when the test reads its file
@pytest.mark.parametrize("name", READERS)
def test_the_real_package_holds_the_values_that_the_journal_holds(tmp_path, capfd, patient, name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed (pip install {name})")
    run_dir = tmp_path / "runs" / "r"
    log_a_run(run_dir, [name])
    assert READERS[name](run_dir) == [(step, pytest.approx(1.0 / step, rel=1e-7)) for step in range(1, N_STEPS + 1)]
    assert "scalewright:" not in capfd.readouterr().err
