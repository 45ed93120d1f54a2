"""The study's directory: what counts as done, what is moved aside, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from radial.study.plan import Study
from radial.study.store import EVALUATION, RESULT, SCORES, Store

Make = Callable[..., Study]
ANY = {RESULT: "", EVALUATION: "", SCORES: ""}
WHOLE = {
    RESULT: {"verdict": "ok", "seconds": 2.0},
    EVALUATION: {"probes": {}, "seconds": 1.0},
    SCORES: {"scores": []},
}


@pytest.fixture
def store(tmp_path: Path, tiny: Make) -> Store:
    made = Store(tmp_path / "study")
    made.create(tiny())
    return made


def write(store: Store, run: str, *names: str) -> None:
    store.run(run).mkdir(parents=True, exist_ok=True)
    for name in names:
        (store.run(run) / name).write_text(json.dumps(WHOLE[name]))


def test_complete_is_all_that_the_study_asks_for(store: Store, tiny: Make) -> None:
    write(store, "a", RESULT, EVALUATION)
    assert store.missing("a", ANY) == [SCORES]
    assert store.missing("a", {RESULT: "", EVALUATION: ""}) == []
    assert list(store.steps(tiny())) == [RESULT, EVALUATION, SCORES]
    assert list(store.steps(tiny(score=False, evaluate=False))) == [RESULT]
    assert store.missing("nothing", ANY) == [RESULT, EVALUATION, SCORES]


def test_a_step_made_with_other_settings_is_not_done(store: Store, tiny: Make) -> None:
    asked, other = (store.steps(tiny(evaluate=e)) for e in ({}, {"protocol": ["exact", "paper"]}))
    write(store, "a", RESULT)
    path = store.run("a") / EVALUATION
    path.write_text(json.dumps(WHOLE[EVALUATION] | {"asked": asked[EVALUATION]}))
    assert store.missing("a", {RESULT: "", EVALUATION: asked[EVALUATION]}) == []
    assert store.missing("a", {RESULT: "", EVALUATION: other[EVALUATION]}) == [EVALUATION]
    assert store.steps(tiny(evaluate={"protocol": ["exact"], "batch": 64})) == asked


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"other": 1}', b"\xff\xfe", b"null"])
def test_what_cannot_be_read_is_reported_and_kept(store: Store, content: bytes) -> None:
    write(store, "a", RESULT, EVALUATION, SCORES)
    path = store.run("a") / RESULT
    path.write_bytes(content)
    told: list[str] = []
    assert store.missing("a", {RESULT: "", EVALUATION: ""}, told.append) == [RESULT]
    assert len(told) == 1
    assert "counts as not done" in told[0]
    for number in (1, 2):
        path.write_bytes(content)
        store.set_aside("a", RESULT)
        assert not path.exists()
        assert (store.run("a") / f"{RESULT}.unreadable-{number}").read_bytes() == content
    write(store, "a", RESULT)
    store.set_aside("a", RESULT)  # whole: stays
    assert path.exists()


def test_failures_are_counted_and_forgiven(store: Store) -> None:
    store.fail("a", RESULT, "ValueError: no", "s1")
    store.fail("a", RESULT, "ValueError: no again", "s2")
    assert store.failure("a") == {
        "error": "ValueError: no again", "step": RESULT, "session": "s2", "attempts": 2,
    }  # fmt: skip
    store.forgive("a")
    store.forgive("a")
    assert store.failure("a") == {}


def test_a_study_grows_but_is_not_mixed_up(store: Store, tiny: Make, tmp_path: Path) -> None:
    told: list[str] = []
    before = (store.path / "study.yaml").read_text()
    store.create(tiny(), tell=told.append)
    assert not told
    store.create(tiny(seeds=[1, 2, 3]), tell=told.append)
    assert len(store.study().runs()) == 6
    assert "2 of its runs are not planned any more" in told[0]
    assert (store.path / "study.yaml.before-1").read_text() == before
    with pytest.raises(ValueError, match=r"is not a study: it has no study\.yaml"):
        Store(tmp_path).study()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"is not empty and not a study"):
        Store(tmp_path / "full").create(tiny())
    with pytest.raises(ValueError, match=r"is a file"):
        Store(tmp_path / "full" / "thesis.tex").create(tiny())


def test_a_newer_study_is_left_alone(store: Store, tiny: Make) -> None:
    path = store.path / "study.yaml"
    text = yaml.safe_dump(yaml.safe_load(path.read_text()) | {"version": 9, "colour": "red"})
    path.write_text(text)
    for act in (store.study, lambda: store.create(tiny())):
        with pytest.raises(ValueError, match=r"newer radial \(format 9; this one reads 1\)"):
            act()
    assert path.read_text() == text


def test_paths_are_absolute(tmp_path: Path, tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "study")
    store.create(tiny(constants={"data": "folder:images", "data_root": "root"}))
    config = store.study().runs()[0].config
    assert config.data == f"folder:{tmp_path / 'images'}"
    assert config.data_root == str(tmp_path / "root")
