"""Small files: read as typed records whatever stands in them, and written whole or not at all."""

import json
import os
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scalewright.orchestrator import files
from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import Broken, UnusableFile, printable, read, replacing, require, usable, write_json
from scalewright.orchestrator.jobs import doctor_probe, lanes, records, snapshot
from scalewright.orchestrator.jobs.judge import Claim, JobFacts, judge
from scalewright.orchestrator.report import page_store
from scalewright.orchestrator.runs import records as run_records
from scalewright.orchestrator.runs.run_files import read_run
from scalewright.orchestrator.train.assignment import read_assignment

KINDS = [
    *(run_records.Done, run_records.Again, run_records.Stop, run_records.Owner, run_records.SpecFile),
    *(records.Submission, records.Started, records.Failed, records.Finished, records.BatchStopped, records.Hangs),
    *(records.Pack, records.Chunk, snapshot.Snapshot, lanes.Over, doctor_probe.Probe),
    *(manifest.ManifestFile, page_store.StoredPage),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ANY_FILE = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def likely(kind):
    """JSON with the keys of a record and anything as its values: the closest that a broken file comes."""
    names = list(files.fields_of(kind))
    return st.dictionaries(st.sampled_from(names), json_values).map(lambda found: dict.fromkeys(names, None) | found)


def contents(kind):
    texts = (json_values | likely(kind)).map(lambda value: json.dumps(value).encode())
    torn = st.tuples(texts, st.integers(0, 80)).map(lambda pair: pair[0][: pair[1]])
    return texts | torn | st.binary(max_size=60) | st.sampled_from([b"", b"\0" * 40, b"[]", b'{"outcome":"won"}'])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@ANY_FILE
def test_whatever_stands_in_a_file_it_is_a_record_or_an_error_that_names_the_file(tmp_path, kind, data):
    path = tmp_path / "some.json"
    path.write_bytes(data.draw(contents(kind)))
    found = read(path, kind)
    assert isinstance(found, kind | Broken)
    if isinstance(found, Broken):
        assert str(found).startswith(f"{path}: ") and found.why.isprintable()
        with pytest.raises(UnusableFile):
            require(path, kind)
    else:
        write_json(path, found)
        assert read(path, kind) == found


@given(data=st.data())
@ANY_FILE
def test_whatever_stands_in_the_files_of_a_run_it_is_judged(tmp_path, data):
    run_dir = tmp_path / "runs" / "0123456789abcdef"
    run_dir.mkdir(parents=True, exist_ok=True)
    for name, kind in [("DONE.json", run_records.Done), ("again.json", run_records.Again), ("stop", run_records.Stop),
                       ("spec.json", run_records.SpecFile), ("owner.json", run_records.Owner)]:  # fmt: skip
        if data.draw(st.booleans()):
            (run_dir / name).write_bytes(data.draw(contents(kind)))
    lines = st.fixed_dictionaries({}, optional=dict.fromkeys(LINE_KEYS, json_values))
    typed = st.sampled_from(["start", "end", "metrics"]).flatmap(lambda t: lines.map(lambda one: one | {"type": t}))
    journal = data.draw(st.lists(typed | json_values, max_size=5))
    (run_dir / "journal.a1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in journal))
    run = read_run(run_dir)
    job = JobFacts(data.draw(st.sampled_from(["pending", "running", "ended", "absent", "unreachable"])))
    judge(run, job, Claim("s", "p", None, None, 0.0), 1e9)
    with pytest.raises(UserError):
        read_assignment(run_dir)
    for path in run_dir.iterdir():
        path.unlink()


LINE_KEYS = ("run_id", "job", "step", "tokens", "resume_step", "resume_tokens", "outcome", "error", "time", "values")


@dataclass(frozen=True)
class Inner:
    n: int


@dataclass(frozen=True)
class Sample:
    name: str
    size: float
    inner: Inner
    maybe: int | None = None
    many: list[Inner] = field(default_factory=list)
    pair: tuple[int, ...] = ()
    by_name: dict[str, bool] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        ("\0\0\0", "nothing but zero bytes"),
        ("{", "not JSON (line 1, column 2)"),
        ("[]", "it is not a JSON object"),
        ('{"size": 1, "inner": {"n": 1}}', "no name in it"),
        ('{"name": "a", "size": 1, "inner": {}}', "no inner.n in it"),
        ('{"name": "a", "size": 1, "inner": {"n": 1}, "colour": 1}', "a key that is not known: colour"),
        ('{"name": 1, "size": 1, "inner": {"n": 1}}', "name: 1 is not text"),
        ('{"name": "a", "size": true, "inner": {"n": 1}}', "size: True is not a number"),
        ('{"name": "a", "size": 1, "inner": {"n": 1.5}}', "inner.n: 1.5 is not a whole number"),
        ('{"name": "a", "size": 1, "inner": {"n": 1}, "maybe": "x"}', "maybe: x is not a whole number"),
        ('{"name": "a", "size": 1, "inner": {"n": 1}, "many": [{"n": 1}, 2]}', "many[1] is not a JSON object"),
        ('{"name": "a", "size": 1, "inner": {"n": 1}, "pair": {}}', "pair: {} is not a list"),
        ('{"name":"a","size":1,"inner":{"n":1},"by_name": {"x\\u0007":1}}', "by_name.x\ufffd: 1 is not true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, content, why):
    path = tmp_path / "sample.json"
    path.write_text(content)
    assert read(path, Sample) == Broken(path, why)
    assert usable(path, Sample) is None


def test_a_sound_file_is_a_record_with_its_types(tmp_path):
    record = Sample("a", 1.0, Inner(2), None, [Inner(3)], (4, 5), {"b": True})
    write_json(tmp_path / "sample.json", record)
    assert read(tmp_path / "sample.json", Sample, name="a") == record
    assert read(tmp_path / "absent.json", Sample) is None
    wrong = read(tmp_path / "sample.json", Sample, name="b")
    assert isinstance(wrong, Broken) and wrong.why == "it is that of name a, not of b"
    with pytest.raises(UnusableFile, match=r"absent\.json: no such file"):
        require(tmp_path / "absent.json", Sample)


def test_a_folder_a_pipe_and_a_file_too_large_are_broken_and_wait_for_nobody(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "LARGEST", 10)
    (tmp_path / "large").write_text(" " * 11)
    found = {name: read(tmp_path / name, Sample) for name in ("folder", "pipe", "large", "large/x")}
    assert all(isinstance(one, Broken) for one in found.values()), found


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def half():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        half()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"] and json.loads(path.read_text()) == {"old": 1}


@given(text=st.text())
@example(text="\x1b[31mred\x07\x9b\r\u202e")
def test_what_a_terminal_would_obey_is_not_printable(text):
    shown = printable(text)
    assert len(shown) == len(text) and all(c.isprintable() or c in "\n\t" for c in shown)
