"""Anyone's points become runs; bad rows are refused by line; the same file again adds nothing."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewright.db import frames
from scalewright.db.engine import open_database
from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.orchestrator.analysis.settings import with_settings
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.import_points import Asked, import_file, parse_columns, parse_units
from scalewright.orchestrator.sync.point_columns import NAMES

POINTS = "Model Size,Training FLOP,loss\n1e6,6e15,3.5\n2e6,1.2e16,3.25\n4e6,2.4e16,3.0\n"


@pytest.fixture
def study(tmp_path):
    return Study.at(tmp_path)


def imported(study, name="points"):
    return frames.final_losses(open_database(study.database), name)


def write(study, text, name="points.csv"):
    path = study.root / name
    path.write_text(text)
    return path


def test_mapped_columns_and_tokens_from_flops(study):
    columns = {"n_params": "Model Size", "flops": "Training FLOP"}
    path = write(study, POINTS)
    receipt = import_file(study, path, "points", Asked(columns, tokens_from_flops="6ND"))
    assert (receipt.n_new, receipt.n_existing, receipt.refused) == (3, 0, [])
    frame = imported(study)
    assert frame["n_tokens"].tolist() == [1e9, 1e9, 1e9] and frame["loss_nats"].tolist() == [3.5, 3.25, 3.0]
    assert frame["flops"].tolist() == [6e15, 1.2e16, 2.4e16] == frame["flops_6n"].tolist()
    assert set(frame["source"]) == {"import"} and frame["annealed"].all() and set(frame["state"]) == {"completed"}


def test_unique_tokens_reach_the_law_of_repeated_data(study):
    rows = []
    for n_params in (1e6, 4e6, 1.6e7, 6.4e7):
        for unique in (1e8, 1e9):
            for epochs in (1, 4, 16):
                worth = unique * (1 + 15 * (1 - math.exp(-(epochs - 1) / 15)))
                rows.append(f"{n_params},{unique * epochs},{unique},{1.7 + 200 / n_params**0.35 + 300 / worth**0.3}")
    text = "\n".join(["n_params,n_tokens,unique_tokens,loss", *rows])
    import_file(study, write(study, text), "epochs")
    frame = imported(study, "epochs")
    assert sorted(set(frame["unique_tokens"])) == [1e8, 1e9]
    assert fit(frame, "repeated-data", "log-l2").params["R_D"].value == pytest.approx(15, rel=0.01)
    import_file(study, write(study, "n_params,n_tokens,loss\n1000,2000,3\n"), "unknown")
    with pytest.raises(FittingError, match="unique_tokens"):
        fit(imported(study, "unknown"), "repeated-data")


def test_the_same_file_again_adds_nothing(study):
    path = write(study, "n_params,n_tokens,loss,seed\n1000,2000,3,0\n1000,2000,3,1\n")
    assert import_file(study, path, "points").n_new == 2
    again = import_file(study, path, "points")
    assert (again.n_new, again.n_existing) == (0, 2)
    assert import_file(study, path, "other name").n_existing == 2
    assert len(imported(study)) == 2 == len(imported(study, "other name"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,2000,3", "n_params is 'x', expected a number"),
        (",2000,3", "no n_params"),
        ("1000,,3", "no n_tokens"),
        ("1000,2000,", "no loss"),
        ("-5,2000,3", "n_params is -5, expected more than 0"),
        ("1000,0,3", "n_tokens is 0, expected more than 0"),
        ("1000,2000,nan", "loss is nan, expected a finite number"),
        ("1000,2000,inf", "loss is inf, expected a finite number"),
        ("1000,2000", "no loss"),
    ],
)
def test_a_bad_row_is_refused_by_line_and_the_others_are_kept(study, row, reason):
    receipt = import_file(study, write(study, f"n_params,n_tokens,loss\n1000,2000,3\n{row}\n2000,4000,2.5\n"), "points")
    assert receipt.n_new == 2 and receipt.refused == [(3, reason)]
    with pytest.raises(Partial, match=f"1 row refused .line 3: {reason}"):
        receipt.raise_if_refused()


def test_lines_are_counted_as_an_editor_does(study):
    text = 'n_params,n_tokens,loss,label\n1000,2000,3,"two\nlines"\nbad,1,1,x\n'
    assert import_file(study, write(study, text), "points").refused[0][0] == 4


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_runs(study, suffix):
    import pandas as pd

    frame = pd.DataFrame({"n_params": [1000, 2000], "n_tokens": [5000, 6000], "loss": [3.0, 2.5], "method": ["a", "b"]})
    path = study.root / f"points{suffix}"
    {
        ".csv": lambda: frame.to_csv(path, index=False),
        ".tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        ".parquet": lambda: frame.to_parquet(path, index=False),
    }[suffix]()
    import_file(study, path, "points")
    found = imported(study)
    assert found[["method", "n_params", "n_tokens", "loss_nats"]].to_numpy().tolist() == [
        ["a", 1000, 5000, 3.0],
        ["b", 2000, 6000, 2.5],
    ]


def test_rows_of_one_run_are_its_curve(study):
    rows = ["method,n_params,seed,step,n_tokens,loss"]
    rows += [f"gpt,1000,{seed},{step},{step * 10},{5 - step / 10 + seed}" for seed in (0, 1) for step in (20, 10, 30)]
    assert import_file(study, write(study, "\n".join(rows)), "points").n_new == 2
    frame = imported(study)
    assert frame["loss_nats"].tolist() == [2.0, 3.0] and frame["n_tokens"].tolist() == [300, 300]
    evaluations = frames.evaluations(open_database(study.database), [frame["run_id"].iloc[0]])
    assert evaluations["step"].tolist() == [10, 20, 30] and evaluations["final"].tolist() == [False, False, True]


def test_a_run_column_says_which_rows_belong_together(study):
    text = "run,n_params,n_tokens,loss\nA,1000,10,3\nB,1000,10,3.1\nA,1000,20,2\n"
    assert import_file(study, write(study, text), "points").n_new == 2
    assert sorted(imported(study)["loss_nats"]) == [2.0, 3.1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loss=final", {"loss": "final"}),
        (
            'n_params="Model Size",flops="Training FLOP",loss=loss',
            {"n_params": "Model Size", "flops": "Training FLOP", "loss": "loss"},
        ),
        ("n_params=Model Size,flops=Training FLOP", {"n_params": "Model Size", "flops": "Training FLOP"}),
        ('loss="a, b = c" , seed = s', {"loss": "a, b = c", "seed": "s"}),
        ("", {}),
    ],
)
def test_column_names_may_hold_spaces_and_commas(text, expected):
    assert parse_columns(text) == expected


@given(st.dictionaries(st.sampled_from(NAMES), st.from_regex(r"[A-Za-z0-9 ,=_()-]{1,20}", fullmatch=True), max_size=5))
def test_quoted_columns_read_back(columns):
    assert parse_columns(",".join(f'{ours}="{theirs}"' for ours, theirs in columns.items())) == columns


@pytest.mark.parametrize("text", ["loss", "los=x", "=x", "loss=x,,y", "loss=a=b,what"])
def test_columns_that_mean_nothing_are_refused(text):
    with pytest.raises(UserError, match="expected NAME=COLUMN"):
        parse_columns(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "no column 'n_params' for n_params; columns: none"),
        ("a.csv", "n_param,n_tokens,loss\n1,2,3\n", "did you mean --columns n_params=n_param"),
        ("a.csv", "n_params,n_tokens,loss\n", "no column 'n_params'|no row can be used"),
        ("a.csv", "n_params,n_tokens,loss\nx,1,1\n", r"no row can be used .line 2"),
        ("a.xlsx", "x", "endings: .csv, .tsv, .jsonl, .parquet"),
        ("a.jsonl", '{"n_params": 1}\n[1]\n', "a.jsonl:2: not a JSON object"),
        ("a.jsonl", '{"n_params": 1\n', "a.jsonl:1: not a JSON object"),
        ("a.jsonl", '{"loss": 1, "loss": 2}\n', "a.jsonl:1: 'loss' stands there twice"),
        ("a.csv", "loss,n_params,loss\n1,2,3\n", "two columns are named 'loss'; give each another name"),
        ("a.parquet", "PAR?", "not a Parquet file"),
    ],
)
def test_files_that_cannot_be_used_say_why(study, name, text, message):
    with pytest.raises(UserError, match=message):
        import_file(study, write(study, text, name), "points")


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(study):
    import pyarrow
    import pyarrow.parquet

    path = study.root / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table([[1.0], [2.0], [3.0]], names=["loss", "n_params", "loss"]), path)
    with pytest.raises(UserError, match="a.parquet: two columns are named 'loss'; give each another name"):
        import_file(study, path, "points")


def test_a_missing_file_and_an_unknown_rule_are_refused(study):
    with pytest.raises(UserError, match="no such file"):
        import_file(study, study.root / "none.csv", "points")
    with pytest.raises(UserError, match="unknown rule .rules: 6ND"):
        import_file(study, write(study, POINTS), "points", Asked(tokens_from_flops="7ND"))


def test_hostile_names_are_only_text(study):
    word = "'; DROP TABLE runs; --"
    text = json.dumps({"n_params": 1000, "n_tokens": 2000, "loss": 3, "method": word, "label": "\u001b[31mred"})
    import_file(study, write(study, text, "a.jsonl"), word)
    frame = imported(study, word)
    assert frame["method"].tolist() == [word] and math.isclose(frame["flops"].iloc[0], 6 * 1000 * 2000)


CASES = {
    "billions": "n_params,n_tokens,loss\n0.1,0.5,3.8\n0.4,2.25,3.3\n",
    "fractions": "n_params,n_tokens,batch_tokens,loss\n10000000.5,1264911064.067352,0.5,3.8\n",
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_and_tokens_are_kept_as_they_were_given(study, name):
    """They were rounded to whole numbers: a table in billions gave alpha 1.76 for a true 0.35, and no word."""
    import_file(study, write(study, CASES[name]), name)
    head, *rows = (line.split(",") for line in CASES[name].splitlines())
    frame = imported(study, name)
    for column, values in zip(head, zip(*rows, strict=True), strict=True):
        stored = frame["loss_nats" if column == "loss" else column]
        assert sorted(stored) == sorted(map(float, values))
    listed = frames.runs(open_database(study.database), name)
    assert sorted(listed["n_tokens_planned"]) == sorted(float(row[1]) for row in rows) == sorted(listed["n_tokens"])


def test_units_are_said_or_brought_by_the_cells(study):
    text = "n_params,n_tokens,loss\n1.5B,20,3\n350M,4.5,3.5\n"
    import_file(study, write(study, text), "units", Asked(units=parse_units("n_tokens=B")))
    frame = imported(study, "units")
    assert frame["n_params"].tolist() == [350_000_000, 1_500_000_000] and frame["n_tokens"].tolist() == [45e8, 2e10]
    with pytest.raises(UserError, match="line 2: n_params is '1.5B', a unit beside the --units B that was said"):
        import_file(study, write(study, text), "both", Asked(units=parse_units("n_params=B, n_tokens=b")))


@pytest.mark.parametrize("text", ["n_params", "n_params=X", "loss=B", "n_params=B,seed=M"])
def test_units_that_mean_nothing_are_refused(text):
    with pytest.raises(UserError, match="expected NAME=UNIT with a NAME of n_params, .* K, M, B or T"):
        parse_units(text)


def surface(rows=30, *, last=None):
    sizes = [(1e7 * 3 ** (i % 6), 1e9 * 3 ** (i // 6)) for i in range(rows)]
    losses = [1.7 + 400 / n**0.34 + 400 / d**0.28 for n, d in sizes]
    losses[-1] = last or losses[-1]
    return [f"{n:.0f},{d:.0f},{loss}" for (n, d), loss in zip(sizes, losses, strict=True)]


def table(rows, head="n_params,n_tokens,loss"):
    return "\n".join([head, *rows])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CASES["billions"], ["n_params goes from 0.1 to 0.4: .* --units n_params=B", "n_tokens goes from 0.5 to 2.25"]),
        (table([*surface(), *surface()]), ["lines 32, 33, 34, 35, 36 and 25 more: equal to an earlier row"]),
        (table(surface(last=1e30)), ["line 31: a loss above 20 nats"]),
        (table(surface(last=0.9)), ["line 31: the loss lies far below a smooth surface"]),
        (table(surface(last=4.9)), ["line 31: the loss lies far above a smooth surface"]),
        (table(["1e8,1e9,3,0", "1e8,1e9,3.1,0"], "n_params,n_tokens,loss,seed"), ["line 3: .* the seed of an earlier"]),
        (table(["1e8,1e9,3,a", "1e8,1e9,3,b"], "n_params,n_tokens,loss,name"), ["not read: name", "to the last digit"]),
        (
            table(["1e8,1e9,3,2,x", "1e8,1e9,3.1,8,x"], "n_params,n_tokens,loss,batch,note"),
            [r"^not read: batch\. .* --settings batch$"],
        ),
        (
            table(["0.1,1e9,3,6e17"], "n_params,n_tokens,loss,flops"),
            ["n_params goes", "flops are 1e.09 times 6 n_params"],
        ),
        (table(surface()), []),
        (table(["1e8,1e9,3,0", "1e8,1e9,3,1"], "n_params,n_tokens,loss,seed"), []),
    ],
)
def test_what_looks_wrong_is_said_and_nothing_else(study, text, words):
    receipt = import_file(study, write(study, text), "points")
    assert len(receipt.notes) == len(words) and receipt.summary()["notes"] == receipt.notes
    for note, pattern in zip(receipt.notes, words, strict=True):
        assert re.search(pattern, note)


def test_rows_told_twice_are_counted_once(study):
    """Each of them counted as a run of its own: standard errors were halved."""
    import_file(study, write(study, table(surface() * 3)), "points")
    assert len(imported(study)) == 30
    import_file(
        study, write(study, table(["1e8,1e9,3,0,a", "1e8,1e9,3,0,b"], "n_params,n_tokens,loss,seed,name")), "seeds"
    )
    assert len(imported(study, "seeds")) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1e8,3e9,2.9,7", "4 values under 3 names; is there a comma inside a number or a text?"),
        ("31,622,776,1000000000,2.9", "5 values under 3 names"),
        ('1e8,"2,500",3', "n_tokens is '2,500', expected a number without separators"),
        ("NA,1e9,3", "n_params is 'NA', expected a number"),
    ],
)
def test_a_shifted_row_is_refused(study, row, reason):
    receipt = import_file(study, write(study, f"n_params,n_tokens,loss\n1e7,1e9,3,\n{row}\n,,\n\n"), "points")
    assert receipt.n_new == 1 and len(receipt.refused) == 1
    assert receipt.refused[0][0] == 3 and reason in receipt.refused[0][1]


def test_what_is_not_known_of_a_row_does_not_refuse_it(study):
    text = "n_params,n_tokens,loss,seed,lr_peak,step\n1e8,1e9,3,NA,nan,\n1e8,2e9,2.9,1,-,null\n"
    assert import_file(study, write(study, text), "points").refused == []
    odd = "n_params,n_tokens,loss,seed\n1e8,1e9,3,0.5\n1e8,2e9,2.9,1\n"
    assert import_file(study, write(study, odd), "odd").refused == [(2, "seed is 0.5, expected a whole number")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "n_params;n_tokens;loss\n1;2;3\n", "parted by ';', expected ','; save it with commas"),
        ("a.csv", "n_params\tn_tokens\tloss\n1\t2\t3\n", "parted by tabs, expected ','"),
        ("a.csv", "n_params,n_tokens,loss,loss\n1,2,3,4\n", "two columns are named 'loss'"),
        ("a.jsonl", '{"n_params": 1, "n_tokens": 2, "loss": 3, "loss": 4}', "a.jsonl:1: 'loss' stands there twice"),
    ],
)
def test_a_table_that_can_be_read_in_two_ways_is_refused(study, name, text, message):
    with pytest.raises(UserError, match=message):
        import_file(study, write(study, text, name), "points")


def test_held_out_runs_batches_and_further_settings_are_kept(study):
    head = "n_params,n_tokens,loss,holdout,batch_tokens,warmup"
    text = table(["1e8,1e9,3,false,0.5M,0.1", "1e8,2e9,2.9,yes,0.5M,0.2", "1e8,4e9,2.8,maybe,1M,0.2"], head)
    receipt = import_file(study, write(study, text), "points", Asked(settings=("warmup",)))
    assert receipt.refused == [(4, "holdout is 'maybe', expected true or false")]
    frame = imported(study)
    assert frame["holdout"].tolist() == [False, True] and frame["batch_tokens"].tolist() == [500_000, 500_000]
    told = with_settings(open_database(study.database), "points", frame.assign(size="a", budget="b"))
    assert told["setting: warmup"].tolist() == ["0.1", "0.2"]
    with pytest.raises(UserError, match="no column 'decay' for --settings"):
        import_file(study, write(study, text), "points", Asked(settings=("decay",)))
