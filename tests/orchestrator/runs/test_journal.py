"""The journal: one line a write, an attempt of its own, and nothing that can stop training."""

import json
import math
import os
import threading

import numpy as np
import pytest

from scalewright.orchestrator.runs import journal as module
from scalewright.orchestrator.runs.journal import Journal, attempts_in, journal_path

START = {"run_id": "r" * 16, "token": "t", "resume_step": 0, "resume_tokens": 0, "code": {}, "environment": {}}


def records(journal):
    content = journal.path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def test_attempts_are_numbered_on_disk(tmp_path):
    journals = [Journal.open(tmp_path, START) for _ in range(3)]
    assert [journal.attempt for journal in journals] == [1, 2, 3] == attempts_in(tmp_path)
    (tmp_path / "journal.a7.jsonl").touch()
    (tmp_path / "journal.a09.jsonl").touch()
    (tmp_path / "journal.ax.jsonl").touch()
    assert Journal.open(tmp_path, START).attempt == 8


def test_threads_that_start_at_once_never_share_a_journal(tmp_path):
    opened, start = [], threading.Barrier(8)

    def begin():
        start.wait()
        opened.append(Journal.open(tmp_path, START).attempt)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(opened) == list(range(1, 9))


def test_the_start_record_says_who_works_on_what(tmp_path):
    journal = Journal.open(tmp_path, START | {"job": {"job_id": "7"}})
    (start,) = records(journal)
    assert start["type"] == "start" and start["attempt"] == 1 and start["pid"] == os.getpid()
    assert start["job"] == {"job_id": "7"} and start["time"] > 1e9 and start["host"]


def test_each_kind_of_record_has_its_fields(tmp_path):
    with Journal.open(tmp_path, START) as journal:
        journal.metrics(1, 8, {"loss_nats": 1.5})
        journal.layers(1, 8, {"norm": [1.0, 2.0]})
        journal.evaluation(1, 8, {"loss_nats": 2.0, "bits_per_byte": 2.9}, n_tokens=99, final=True, annealed=True)
        journal.checkpoint(1, 8, "ckpt/step-000000001.pt", 123)
        journal.end("completed", 1, 8, reason="all steps done", wall_s=2.0, train_wall_s=1.0)
    _, metrics, layers, evaluation, checkpoint, end = records(journal)
    assert metrics | {"time": 0} == {"type": "metrics", "step": 1, "tokens": 8, "time": 0, "values": {"loss_nats": 1.5}}
    assert layers["values"] == {"norm": [1.0, 2.0]}
    assert (evaluation["split"], evaluation["n_tokens"], evaluation["final"]) == ("validation", 99, True)
    assert (checkpoint["path"], checkpoint["bytes"]) == ("ckpt/step-000000001.pt", 123)
    assert (end["outcome"], end["reason"], end["wall_s"], end["train_wall_s"]) == (
        "completed",
        "all steps done",
        2.0,
        1.0,
    )


def test_every_line_is_one_write(tmp_path, monkeypatch):
    journal, writes = Journal.open(tmp_path, START), []
    write = os.write
    monkeypatch.setattr(module.os, "write", lambda fd, data: writes.append(bytes(data)) or write(fd, data))
    for step in range(5):
        journal.metrics(step, step, {"loss_nats": float(step), "lr": 0.1})
    assert len(writes) == 5 and all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in writes)


def test_nan_and_infinities_are_spelled_out_at_any_depth(tmp_path):
    with Journal.open(tmp_path, START) as journal:
        journal.metrics(1, 1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5})
        journal.layers(1, 1, {"a": [1.0, math.nan]})
        journal.metrics(2, 2, {"null": 1.0})
    _, metrics, layers, named_null = records(journal)
    assert metrics["values"] == {"a": "nan", "b": "inf", "c": "-inf", "d": 1.5}
    assert layers["values"] == {"a": [1.0, "nan"]}
    assert named_null["values"] == {"null": 1.0}


def test_numpy_numbers_are_numbers(tmp_path):
    with Journal.open(tmp_path, START) as journal:
        journal.metrics(1, 1, {"a": np.float32(0.5), "b": np.int64(3), "c": np.float64(math.nan)})
    assert records(journal)[1]["values"] == {"a": 0.5, "b": 3, "c": "nan"}


def test_a_short_write_is_continued_before_the_next_line(tmp_path, monkeypatch):
    journal, write, calls = Journal.open(tmp_path, START), os.write, []

    def write_little(descriptor, data):
        calls.append(1)
        return write(descriptor, bytes(data)[:7])

    monkeypatch.setattr(module.os, "write", write_little)
    journal.metrics(1, 1, {"loss_nats": 1.0})
    journal.metrics(2, 2, {"loss_nats": 2.0})
    journal.close()
    assert [record.get("step") for record in records(journal)] == [None, 1, 2] and len(calls) > 10


def test_a_full_disk_is_said_once_and_everything_follows_when_there_is_room(tmp_path, monkeypatch, capsys):
    journal, write, is_full = Journal.open(tmp_path, START), os.write, [True]

    def refuse(descriptor, data):
        if is_full[0]:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(module.os, "write", refuse)
    for step in range(1, 4):
        journal.metrics(step, step, {"loss_nats": float(step)})
    assert not journal.sync_to_disk()
    assert capsys.readouterr().err.count("No space left") == 1
    is_full[0] = False
    journal.metrics(4, 4, {"loss_nats": 4.0})
    assert journal.sync_to_disk()
    assert [record.get("step") for record in records(journal)] == [None, 1, 2, 3, 4]


def test_what_is_lost_for_good_is_said_at_the_end(tmp_path, monkeypatch, capsys):
    journal = Journal.open(tmp_path, START)

    def refuse(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", refuse)
    journal.metrics(1, 1, {"loss_nats": 1.0})
    journal.close()
    journal.close()
    assert "bytes could not be written" in capsys.readouterr().err


def test_a_heartbeat_is_written_only_after_silence(tmp_path, monkeypatch):
    journal, now = Journal.open(tmp_path, START), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    journal.metrics(1, 1, {"loss_nats": 1.0})
    for now[0] in (1.0, 9.9, 10.1, 10.2, 25.0):
        journal.heartbeat(2, 2)
    assert [record["type"] for record in records(journal)].count("heartbeat") == 2


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Journal.open(tmp_path / "none", START)


def test_paths_of_journals_are_those_that_sync_looks_for(tmp_path):
    assert module.NAME.fullmatch(journal_path(tmp_path, 12).name)[1] == "12"
