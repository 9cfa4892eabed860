"""What other loggers cost for the same work; run with the Python that has them: prints one JSON line a peer.

Usage: python runsdb_peers.py PEER FOLDER N_STEPS. Peers: csvlogger, tensorboard, mlflow, mlflow-batch.
"""

import json
import sys
import time
import warnings
from pathlib import Path

N_SCALARS = 10
NAMES = [f"metric_{i}" for i in range(N_SCALARS)]


def csvlogger(folder):
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(folder, flush_logs_every_n_steps=100)
    return logger.log_metrics, lambda: logger.finalize("success"), lambda: rows_of_csv(folder)


def rows_of_csv(folder):
    return sum(len(path.read_text().splitlines()) - 1 for path in Path(folder).rglob("metrics.csv"))


def tensorboard(folder):
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(values, step):
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log, writer.close, lambda: None


def mlflow_client(folder):
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("bench", artifact_location=folder)
    return mlflow, client, client.create_run(experiment).info.run_id


def mlflow(folder):
    _, client, run_id = mlflow_client(folder)

    def log(values, step):
        for name, value in values.items():
            client.log_metric(run_id, name, value, step=step)

    return log, lambda: None, lambda: None


def mlflow_batch(folder):
    """One log_batch for each 100 steps, its largest size: the fastest way that MLflow has."""
    module, client, run_id = mlflow_client(folder)
    waiting = []

    def flush():
        client.log_batch(run_id, metrics=waiting)
        waiting.clear()

    def log(values, step):
        waiting.extend(module.entities.Metric(name, value, 0, step) for name, value in values.items())
        if len(waiting) >= 1000:
            flush()

    return log, flush, lambda: None


PEERS = {"csvlogger": csvlogger, "tensorboard": tensorboard, "mlflow": mlflow, "mlflow-batch": mlflow_batch}


def measure(peer, folder, n_steps):
    """Log steps of 10 scalars; return microseconds a step and points a second until all of it is on disk."""
    log, close, _ = PEERS[peer](folder)
    values = {name: 0.123456789 * i for i, name in enumerate(NAMES)}
    log(values, step=0)
    costs, began = [], time.perf_counter()
    for step in range(1, n_steps + 1):
        before = time.perf_counter_ns()
        log(values, step=step)
        costs.append(time.perf_counter_ns() - before)
    close()
    seconds = time.perf_counter() - began
    costs.sort()
    n_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "p50_us": costs[len(costs) // 2] / 1e3,
        "p99_us": costs[len(costs) * 99 // 100] / 1e3,
        "points_per_s": n_steps * N_SCALARS / seconds,
        "bytes_per_point": n_bytes / (n_steps * N_SCALARS),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
