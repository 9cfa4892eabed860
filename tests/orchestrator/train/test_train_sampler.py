"""The sampler: a pure function of seed and step that visits every window once an epoch."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewright.orchestrator.data import manifest
from scalewright.orchestrator.data.prepare import prepare
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.train.sampler import TrainSampler, Windows, open_train, permute, read_validation

CONTEXT = 8
SHARDS = [np.arange(0, 1003), np.arange(2000, 2007), np.arange(3000, 3041)]  # 125, 0 and 5 windows
N_WINDOWS = 130


def sampler(seed: int = 0, batch: int = 4) -> TrainSampler:
    return TrainSampler(Windows(SHARDS, CONTEXT), seed, batch)


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_the_order_of_an_epoch_is_a_permutation_for_every_size_and_key(n: int, key: int) -> None:
    order = permute(np.arange(n), np.full(n, key, dtype=np.uint64), n)
    assert (np.sort(order) == np.arange(n)).all()


def test_every_window_is_seen_once_an_epoch_and_each_epoch_has_its_own_order() -> None:
    drawn = sampler(batch=10).indices(0, 39).reshape(3, N_WINDOWS)
    assert (np.sort(drawn, axis=1) == np.arange(N_WINDOWS)).all()
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[1] != drawn[2]).any()


def test_an_order_looks_random() -> None:
    order = permute(np.arange(10_000), np.zeros(10_000, dtype=np.uint64), 10_000)
    correlation = np.corrcoef(np.arange(10_000), order)[0, 1]
    assert abs(correlation) < 0.04  # four standard deviations of a random order's
    assert (np.abs(np.diff(order)) == 1).sum() < 12  # 2 expected


@given(st.integers(0, 500), st.integers(1, 20), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_any_step_is_read_at_once_whatever_was_read_before(step: int, n_steps: int, seed: int) -> None:
    one_by_one = np.concatenate([sampler(seed).read(step + number) for number in range(n_steps)])
    assert (sampler(seed).read(step, n_steps) == one_by_one).all()


def test_a_window_is_its_tokens_and_the_next_one_inside_one_shard() -> None:
    windows = Windows(SHARDS, CONTEXT).read(np.arange(N_WINDOWS))
    assert windows.shape == (N_WINDOWS, CONTEXT + 1)
    assert (np.diff(windows, axis=1) == 1).all()  # the shards count upwards, so a window over an end would jump
    assert (windows[:125, 0] == np.arange(125) * CONTEXT).all()
    assert windows[125:, 0].tolist() == [3000, 3008, 3016, 3024, 3032]


def test_the_seed_decides_the_order() -> None:
    assert (sampler(0).indices(0, 10) == sampler(0).indices(0, 10)).all()
    assert (sampler(0).indices(0, 10) != sampler(1).indices(0, 10)).any()


def test_the_batch_size_cuts_one_and_the_same_order() -> None:
    assert (sampler(batch=4).indices(0, 15).ravel() == sampler(batch=12).indices(0, 5).ravel()).all()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "a.txt").write_text("".join(f"Line {number} of the story.\n\n" * 400 for number in range(20)))
    prepare([folder / "a.txt"], "bytes", folder / "data", validation_fraction=0.3)
    return folder / "data"


def test_validation_is_a_fixed_set_of_windows_over_the_whole_split(data_dir: Path) -> None:
    made = manifest.read(data_dir)
    n_windows = made.validation.n_windows(CONTEXT)
    every = read_validation(data_dir, made, CONTEXT, n_windows)
    few = read_validation(data_dir, made, CONTEXT, 10)
    assert every.shape == (n_windows, CONTEXT + 1)
    assert (few == every[np.arange(10) * n_windows // 10]).all()


def test_more_validation_windows_than_there_are_is_an_error_with_both_numbers(data_dir: Path) -> None:
    made = manifest.read(data_dir)
    n_windows = made.validation.n_windows(CONTEXT)
    with pytest.raises(UserError, match=f"{n_windows + 1} validation windows of 8 tokens .* has {n_windows}"):
        read_validation(data_dir, made, CONTEXT, n_windows + 1)


def test_training_data_shorter_than_a_window_is_an_error(data_dir: Path) -> None:
    with pytest.raises(UserError, match="no window of 10000000 tokens"):
        open_train(data_dir, manifest.read(data_dir), 10_000_000, 0, 1)
