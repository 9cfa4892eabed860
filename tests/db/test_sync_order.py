"""Journals in any order, cut anywhere, read again: what sync stores is what the rule about attempts says."""

import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scalewright.db import frames
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.runs.journal import journal_path
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync import sync as sync_module
from scalewright.orchestrator.sync.sync import rebuild, sync, sync_database

RULE = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = iter(range(10**6, 10**9))


def line(**record):
    return orjson.dumps(record) + b"\n"


def start_line(run_id, attempt, resume_step):
    job = {"run_id": run_id, "attempt": attempt, "token": "t", "time": 1.0, "host": "h", "pid": 1, "job": {}}
    return line(type="start", **job, resume_step=resume_step, resume_tokens=resume_step * 1024, code={}, environment={})


attempts_of_a_run = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 6), max_size=8)), min_size=1, max_size=4
)
rubbish = st.sampled_from(
    [b"", b"{", b"garbage\n", b"\0\0\0\0", b'{"type":"metrics","step":-1}\n', b"[1]\n", b"\xff\xfe\n"]
)


def journals(run_id, attempts, noise):
    """Make the bytes of each attempt's journal and what they say: attempt -> (resume_step, [(step, value)])."""
    contents, said = {}, {}
    for number, (resume_step, leaps) in enumerate(attempts, 1):
        content, logged, step = start_line(run_id, number, resume_step), [], resume_step
        for leap in leaps:
            step += leap  # 0: the same step once more
            value = float(number * 1000 + step + len(logged) / 100)
            logged.append((step, value))
            if noise and not noise.startswith(b"{"):
                content += noise
            content += line(type="metrics", step=step, tokens=step * 1024, time=1.0, values={"loss_nats": value})
            content += line(
                type="evaluation", step=step, tokens=1, time=1.0, split="validation", values={"loss_nats": value}
            )
        contents[number], said[number] = content, (resume_step, logged)
    return contents, said


def expected(said):
    """Say by the rule in words: a step belongs to the newest attempt that started before it."""
    truth = {}
    for step in range(200):
        owners = [n for n, (resume, _) in said.items() if resume < step or (resume == 0 and step == 0)]
        if owners:
            logged = dict(said[max(owners)][1])
            if step in logged:
                truth[step] = logged[step]
    return truth


def expected_evaluations(said):
    """An attempt may also measure again at the step that it resumed from; the newest attempt's counts."""
    truth = {}
    for number in sorted(said):
        resume, logged = said[number]
        truth = {step: value for step, value in truth.items() if step <= resume and resume > 0}
        truth |= {step: value for step, value in logged if step >= resume}
    return truth


@given(attempts=attempts_of_a_run, noise=rubbish, data=st.data())
@RULE
def test_any_order_and_any_cut_give_what_the_rule_says(db, folder, values_of, attempts, noise, data):
    run_dir = folder.run(seed=next(SEEDS))
    contents, said = journals(run_dir.name, attempts, noise)
    delivered = dict.fromkeys(contents, 0)
    while any(delivered[n] < len(contents[n]) for n in contents):
        number = data.draw(st.sampled_from([n for n in contents if delivered[n] < len(contents[n])]))
        until = data.draw(st.integers(delivered[number] + 1, len(contents[number])))
        with journal_path(run_dir, number).open("ab") as file:
            file.write(contents[number][delivered[number] : until])
        delivered[number] = until
        if data.draw(st.booleans()):
            sync_database(db, folder.runs_dir)
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name) == expected(said)
    found = frames.evaluations(db, [run_dir.name])
    assert dict(zip(found["step"], found["loss_nats"], strict=True)) == expected_evaluations(said)


@given(attempts=attempts_of_a_run)
@example(attempts=[(0, []), (0, [0])])  # the older journal arrives last and has no step: step 0 belongs to the newer
@example(attempts=[(0, [0, 1]), (0, [1])])  # the same where the older has one: nothing of it stays
@example(attempts=[(0, [0]), (3, [1]), (0, [])])
@settings(RULE, max_examples=10)
def test_a_rebuilt_database_has_the_same_content(url, folder, attempts):
    run_dir = folder.run(seed=next(SEEDS))
    contents, _ = journals(run_dir.name, attempts, b"garbage\n")
    study = Study.at(folder.root, database=url)
    for number in sorted(contents, reverse=True):
        journal_path(run_dir, number).write_bytes(contents[number])
        sync(study)
    before = content_hash(open_database(url))
    assert rebuild(study).n_errors >= sum(len(leaps) for _, leaps in attempts)
    assert content_hash(open_database(url)) == before


def test_syncing_again_changes_nothing(db, folder, rows_of):
    run_dir = folder.run()
    folder.finish(run_dir, range(1, 21))
    assert sync_database(db, folder.runs_dir).n_rows == 40
    before = content_hash(db)
    again = sync_database(db, folder.runs_dir)
    assert (again.n_lines, again.n_changes, content_hash(db)) == (0, 0, before)


def test_steps_that_go_back_behind_a_heartbeat_or_in_the_next_part_are_stored_once(db, folder, values_of, monkeypatch):
    """Such journals are of files that were copied about; PostgreSQL refuses a row that it has already."""
    monkeypatch.setattr(sync_module, "CHUNK_BYTES", 500)
    run_dir = folder.run()
    path = folder.write(run_dir, range(1, 21)).path
    sync_database(db, folder.runs_dir)
    with path.open("ab") as file:  # the next part begins with the very step that was stored last
        file.write(line(type="metrics", step=20, time=1.0, values={"loss_nats": 9.0}))
    assert sync_database(db, folder.runs_dir).n_errors == 0 and values_of(db, run_dir.name)[20] == 9.0
    again = b"".join(line(type="metrics", step=n, time=1.0, values={"loss_nats": 7.0}) for n in range(19, 31))
    with path.open("ab") as file:
        file.write(line(type="heartbeat", step=40, tokens=1, time=1.0) + again)
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert values_of(db, run_dir.name) == {n: 10.0 / n if n < 19 else 7.0 for n in range(1, 31)}


def test_a_journal_read_twice_from_its_beginning_is_not_doubled(db, folder, values_of):
    from sqlalchemy import text

    run_dir = folder.run()
    folder.write(run_dir, range(1, 21))
    sync_database(db, folder.runs_dir)
    before = values_of(db, run_dir.name)
    with db.write() as connection:
        connection.execute(text("DELETE FROM ingested_files"))
    sync_database(db, folder.runs_dir)
    assert values_of(db, run_dir.name) == before


def test_only_new_bytes_are_read(db, folder):
    run_dir = folder.run()
    journal = folder.journal(run_dir)
    for step in range(1, 101):
        journal.metrics(step, step * 1024, {"loss_nats": 1.0})
        if step % 50 == 0:
            assert sync_database(db, folder.runs_dir).n_lines == (51 if step == 50 else 50)
    journal.close()


def test_a_torn_last_line_is_waited_for(db, folder, values_of):
    run_dir = folder.run()
    path = folder.write(run_dir, [1, 2]).path
    whole = line(type="metrics", step=3, tokens=3072, time=1.0, values={"loss_nats": 0.5})
    with path.open("ab") as file:
        file.write(whole[:-10])
    assert sync_database(db, folder.runs_dir).n_errors == 0
    assert sorted(values_of(db, run_dir.name)) == [1, 2]
    with path.open("ab") as file:
        file.write(whole[-10:])
    assert sync_database(db, folder.runs_dir).n_lines == 1
    assert values_of(db, run_dir.name)[3] == 0.5
