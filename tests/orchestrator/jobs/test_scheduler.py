"""Runs are dealt to jobs evenly, cheap ones first, and every run goes into exactly one job."""

from hypothesis import given
from hypothesis import strategies as st

from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.jobs.packing import NamedPack, Work, balance, by_profile, chunks, group, take_turns

costs = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=60)


def work_of(seconds):
    return [Work(f"r{index:03d}", f"/runs/r{index:03d}", wall_s) for index, wall_s in enumerate(seconds)]


@given(costs, st.integers(1, 8))
def test_balanced_packs_hold_every_run_once_and_are_even_to_within_the_longest_run(seconds, n_packs):
    packs = balance(work_of(seconds), n_packs)
    assert sorted(one.run_id for pack in packs for one in pack) == [one.run_id for one in work_of(seconds)]
    assert len(packs) == min(n_packs, len(seconds))
    totals = [sum(one.cost for one in pack) for pack in packs]
    assert max(totals) - min(totals) <= max(seconds) + 1e-9


@given(costs, st.integers(1, 8))
def test_every_pack_starts_with_its_cheapest_run(seconds, n_packs):
    for pack in [*balance(work_of(seconds), n_packs), *group(work_of(seconds), n_packs)]:
        assert [one.cost for one in pack] == sorted(one.cost for one in pack)


@given(costs, st.integers(1, 8))
def test_groups_keep_the_order_cheap_first_over_all_jobs(seconds, n_runs):
    packs = group(work_of(seconds), n_runs)
    flat = [one.cost for pack in packs for one in pack]
    assert flat == sorted(seconds) and all(len(pack) <= n_runs for pack in packs)


@given(st.integers(0, 300), st.integers(1, 60))
def test_arrays_are_cut_at_the_sites_limit_without_losing_an_element(n_jobs, largest):
    parts = chunks(n_jobs, largest)
    assert [index for part in parts for index in part] == list(range(n_jobs))
    assert all(len(part) <= largest for part in parts)


def test_the_resource_class_with_the_cheapest_run_comes_first():
    work = [Work("a", "a", 50.0, "large"), Work("b", "b", 1.0, "small"), Work("c", "c", 9.0, "large")]
    assert list(by_profile(work)) == ["small", "large"]


def test_unplanned_times_fall_back_to_flops():
    heavy, light = Work("a", "a", None, flops=1e12), Work("b", "b", None, flops=1e9)
    assert [one.run_id for one in balance([heavy, light], 1)[0]] == ["b", "a"]


def array(profile, n_jobs, cost=1.0):
    return [NamedPack(f"p{i}", (Work(f"r{i}", "/r", cost),), profile, Profile()) for i in range(n_jobs)]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=9), st.integers(1, 40))
def test_arrays_never_have_more_jobs_at_once_than_there_are_places(sizes, n_places):
    arrays = [array(profile, n_jobs) for profile, n_jobs in sorted(sizes)]
    turns = take_turns(arrays, n_places)
    lanes = {turn.lane: max(one.throttle for one in turns if one.lane == turn.lane) for turn in turns}
    assert sum(lanes.values()) <= n_places and all(turn.throttle >= 1 for turn in turns)
    wanted = sum(max(len(a) for a, t in zip(arrays, turns, strict=True) if t.lane == lane) for lane in lanes)
    assert sum(lanes.values()) == min(n_places, wanted)  # and no place is wasted


def test_places_go_where_the_work_is_and_arrays_of_a_class_wait_for_each_other():
    turns = take_turns([array("small", 10), array("large", 10, cost=9.0), array("large", 3)], 8)
    assert [(turn.throttle, turn.lane) for turn in turns] == [(1, 0), (7, 1), (3, 1)]
    free = take_turns([array("small", 1), array("large", 1), array("small", 10)], None)
    assert [(turn.throttle, turn.lane) for turn in free] == [(None, 0), (None, 1), (None, 0)]


def test_a_pack_takes_the_time_of_its_runs_over_its_lanes():
    work = tuple(work_of([30.0, 60.0, 90.0]))
    assert NamedPack("p", work, "a", Profile()).wall_s == 180
    assert NamedPack("p", work, "a", Profile(at_once=3)).wall_s == 60
    unknown = (*work, Work("u", "/r/u", None, flops=1e12))
    assert NamedPack("p", unknown, "a", Profile(at_once=3)).wall_s == 60


def test_the_costliest_run_goes_to_the_emptiest_pack():
    packs = balance(work_of([10.0, 7.0, 6.0, 5.0]), 2)
    assert sorted([one.cost for one in pack] for pack in packs) == [[5.0, 10.0], [6.0, 7.0]]
