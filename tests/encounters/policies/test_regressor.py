"""The regressor: its table, its error measure, learning from a study, and its files."""

from __future__ import annotations

import numpy as np
import pytest
from tour import facts, meet

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, DataError
from wayfare.encounters.predictors import make
from wayfare.encounters.predictors.regressor import GRID, Regressor, fit, from_study, interpolated, load, mape, save
from wayfare.encounters.predictors.study import Study, pack, write_bundle


def plane():
    """change = 0.1 - 0.2 own + 0.4 peer, which bilinear interpolation gives back exactly."""
    axis = np.linspace(0, 1, GRID)
    return Regressor(0.1 - 0.2 * axis[:, None] + 0.4 * axis, 0.0, 1.0)


def made_up(models=10):
    """A study in which merging gives the mean of both and a twentieth."""
    own = np.linspace(0.2, 0.65, models)
    matrix = (own[:, None] + own) / 2 + 0.05
    np.fill_diagonal(matrix, own)
    return Study(matrix, np.ones((models, 2), np.int64), {"seed": 3})


@pytest.fixture(scope="module")
def learnt():
    return fit(made_up(), 7)


def test_interpolation_by_hand():
    table = np.array([[0.0, 1.0], [10.0, 31.0]])  # rows: own 0 and 1; columns: peer 0 and 1
    own, peer = np.array([0.0, 1.0, 1.0, 0.5, 0.25]), np.array([1.0, 0.0, 1.0, 0.5, 0.5])
    # the middle is (0 + 1 + 10 + 31) / 4; the last lies a quarter from 0.5 to 20.5
    assert interpolated(table, own, peer).tolist() == [1.0, 10.0, 31.0, 10.5, 5.5]


def test_interpolation_meets_the_grid_and_lies_between():
    table = np.zeros((GRID, GRID))
    table[30, 70] = 1.0
    at = interpolated(table, np.array([0.30, 0.305, 0.305, 0.32]), np.array([0.70, 0.70, 0.695, 0.70]))
    assert at == pytest.approx([1.0, 0.5, 0.25, 0.0], abs=1e-9)


def test_a_prediction_is_my_accuracy_and_the_change():
    score = [0.25, 0.605]
    columns = {"can_send": np.array([1, 1]), "score": np.array(score)}
    meeting = meet(0, [(0, 1)], facts(score), columns)
    said = plane().predict(np.array(score), meeting)
    assert said == pytest.approx([0.25 + 0.1 - 0.05 + 0.242, 0.605 + 0.1 - 0.121 + 0.1])


def test_who_says_nothing_gets_no_prediction():
    regressor = plane()
    assert np.isnan(regressor.change(np.array([0.5, np.nan, 0.5]), np.array([np.nan, 0.5, 0.5]))).tolist() == [
        True, True, False,
    ]  # fmt: skip


def test_outside_it_answers_as_at_its_edge_and_knows():
    regressor = Regressor(plane().table, 0.2, 0.6)
    inside = regressor.change(np.array([0.2, 0.6]), np.array([0.6, 0.6]))
    assert not regressor.is_outside(np.array([0.2, 0.6]), np.array([0.6, 0.6])).any()
    outside = regressor.change(np.array([0.1, 0.9]), np.array([0.7, 0.6]))
    assert outside.tolist() == inside.tolist()
    assert regressor.is_outside(np.array([0.1, 0.9, 0.3]), np.array([0.5, 0.6, 0.7])).all()


@pytest.mark.parametrize("table", [np.zeros((3, 3)), np.full((GRID, GRID), np.nan)])
def test_a_table_that_is_none_is_refused(table):
    with pytest.raises(DataError, match="101 x 101"):
        Regressor(table, 0.0, 1.0)


def test_mape_by_hand():
    # 0.1 of 0.5 is 20 %, 0.1 of 0.25 is 40 %, and of a truth of 0 there is no percentage
    assert mape(np.array([0.5, 0.25, 0.0]), np.array([0.6, 0.15, 0.3])) == pytest.approx(0.3)


def test_it_learns_what_a_merge_changes(learnt):
    regressor, quality = learnt
    # in the middle of what it has seen: own 0.4, peer 0.5 gives 0.5 x 0.1 + 0.05
    assert regressor.change(np.array([0.4]), np.array([0.5])) == pytest.approx([0.1], abs=0.02)
    assert (regressor.low, regressor.high) == (0.2, 0.65)
    assert quality.mape < 0.1 < quality.unchanged


def test_models_are_held_out_whole(learnt):
    """Of 10 models in folds of 3, 3, 2 and 2: 6 + 6 + 2 + 2 ordered pairs of which neither model was seen."""
    _, quality = learnt
    assert len(quality.truth) == len(quality.predicted) == 16
    assert mape(quality.truth, quality.predicted) == quality.mape


def test_the_error_of_no_change_is_that_of_the_held_out_pairs():
    """Two kinds of models, 0.2 and 0.6; a mean is 0.3 or 0.6 or 0.4, so with 0.2 for 0.4 an error is at most 50 %."""
    own = np.array([0.2, 0.6] * 5)
    matrix = np.where(own[:, None] == own, own + 0.1, 0.4)
    np.fill_diagonal(matrix, own)
    _, quality = fit(Study(matrix, np.ones((10, 2), np.int64)))
    assert set(np.round(quality.truth, 9)) <= {0.3, 0.4, 0.7}
    assert 1 / 7 <= quality.unchanged <= 0.5


def test_the_same_seed_gives_the_same_bits(learnt):
    again, quality = fit(made_up(), 7)
    assert again.table.tobytes() == learnt[0].table.tobytes()
    assert (quality.mape, quality.mape_by_pair) == (learnt[1].mape, learnt[1].mape_by_pair)
    assert fit(made_up(), 8)[1].mape != quality.mape


def test_too_few_models_are_refused():
    with pytest.raises(ConfigError, match="at least 8 models, this one has 3"):
        fit(made_up(3))


# ---- files


def test_a_file_gives_everything_back(learnt, tmp_path):
    path = save(made_up(), *learnt, tmp_path / "study.safetensors")
    found, regressor, quality = load(path)
    assert (found.matrix == made_up().matrix).all() and found.about == {"seed": 3}
    assert (regressor.table == learnt[0].table).all()
    assert (regressor.low, regressor.high) == (0.2, 0.65)
    assert quality.settings == learnt[1].settings and quality.mape == learnt[1].mape
    assert (quality.predicted == learnt[1].predicted).all()


def test_a_policy_gets_it_from_the_file(learnt, tmp_path):
    path = save(made_up(), *learnt, tmp_path / "study.safetensors")
    regressor = make("regressor", None, 0, str(path))  # the laboratory is not asked
    assert (regressor.table == learnt[0].table).all()


def test_what_is_no_study_is_refused(learnt, tmp_path):
    with pytest.raises(DataError, match=r"no such file.*wayfare study"):
        from_study(None, 8, str(tmp_path / "none"))
    path = tmp_path / "study.safetensors"
    path.write_bytes(b"not at all")
    with pytest.raises(DataError, match=r"study.safetensors: not a readable study"):
        load(path)
    write_bundle(Bundle({}, {"round": 1}), path)
    with pytest.raises(DataError, match=r"study.safetensors: does not hold a study"):
        load(path)
    write_bundle(pack(made_up()), path)
    with pytest.raises(DataError, match="does not hold a regressor: KeyError 'regressor'"):
        load(path)
    save(made_up(), *learnt, path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="not a readable study"):
        load(path)
