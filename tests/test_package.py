"""The package as a stranger meets it: lazy imports, public names, README, demo."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

import radial
from radial import cli
from radial._moved import MOVED
from radial.cli.terminal import Parser, found

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted(ROOT.glob("docs/tasks/*.md"))]
TEXTS = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_lazy() -> None:
    heavy = "{'torch', 'lightly', 'pytorch_lightning', 'sklearn', 'plotly'}"
    assert python(f"import sys, radial; print(sorted({heavy} & set(sys.modules)))") == "[]"
    layer = f"import sys; from radial import RBFLayer; print(sorted({heavy} & set(sys.modules)))"
    assert python(layer) == "['torch']"


@pytest.mark.parametrize(
    "module",
    [
        "rbf.heads",
        "rbf.calibration",
        "methods",
        "training.build",
        "study.worker",
        "study.executors",
    ],
)
def test_modules_that_do_not_use_a_large_package_do_not_import_it(module: str) -> None:
    """Each costs more than a second; all of them once more than `import torch`."""
    large = "{'lightly', 'pytorch_lightning', 'torchvision', 'pandas', 'timm', 'torch._dynamo'}"
    found = python(f"import sys, radial.{module}; print(sorted({large} & set(sys.modules)))")
    assert found == "[]"


def test_the_command_of_every_family_is_known_without_extras() -> None:
    """`radial data` without its packages is to name them, not to stumble over YAML."""
    extras = "'yaml', 'PIL', 'sklearn', 'pandas', 'pyarrow', 'duckdb', 'filelock', 'urllib3'"
    python(f"""
import sys
sys.modules.update(dict.fromkeys([{extras}]))  # None: as if they were not installed
import radial.cli.data, radial.cli.runs, radial.cli.study
""")


@pytest.mark.parametrize("name", radial.__all__)
def test_public_names_resolve_and_are_documented(name: str) -> None:
    assert getattr(radial, name).__doc__
    assert name in dir(radial)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RBFlayer'"):
        radial.RBFlayer  # noqa: B018


def test_registry_is_where_the_readme_says() -> None:
    assert "gaussian" in radial.functions.RADIAL_FUNCTIONS


BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", flags=re.DOTALL)


@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if BLOCK.search(text)])
def test_examples_run_and_print_what_they_say(
    page: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(TEXTS[page])
    namespace: dict = {}
    for code, told in blocks:  # one after the other, as a reader would
        capsys.readouterr()
        exec(compile(code, "a block of the documentation", "exec"), namespace)
        if told:
            check_print(capsys.readouterr().out, told)


def check_print(printed: str, told: str) -> None:
    """The same words; numbers but for what another processor's rounding makes of them."""
    number = r"-?\d+\.?\d*"
    assert re.sub(number, "N", printed) == re.sub(number, "N", told)
    for ours, theirs in zip(re.findall(number, printed), re.findall(number, told)):
        assert float(ours) == pytest.approx(float(theirs), rel=0.05, abs=0.01)


def test_commands_parse() -> None:
    commands = re.findall(r"^\$ radial (.*)$", "\n".join(TEXTS.values()), flags=re.MULTILINE)
    assert len(commands) >= 20
    for command in commands:
        words, known = shlex.split(command, comments=True), cli.COMMANDS
        path = ["radial"]
        while isinstance(known, Mapping):
            path.append(words.pop(0))
            known = found(known[path[-1]][1])
        parser = Parser(" ".join(path))
        known(parser)
        parser.parse_args(words)


def test_readme_names_only_make_verbs_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for verb in set(re.findall(r"\bmake ([a-z-]+)", README)):
        assert re.search(rf"^{verb}:", makefile, flags=re.MULTILINE), verb


def test_demo_runs_a_study_and_names_its_report(tmp_path, capsys) -> None:
    fewer = ["seeds=[0]", "base_lr=0.12", "epochs=2", "exclude=[]", "methods=[simclr]"]
    options = [word for change in fewer for word in ("--set", change)]
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), *options]) == 0
    printed = capsys.readouterr().out
    page = tmp_path / "demo" / "report.html"
    assert f"report: {page}" in printed
    lines = {tuple(line.split()[:2]): line for line in printed.splitlines()}
    assert "dead head" in lines["simclr", "rbfn-paper"]
    assert "5.54" in lines["simclr", "rbfn-paper"]  # ln 255: a constant output
    assert " ok " in lines["simclr", "rbfn"]
    assert "Plotly.newPlot" in page.read_text(encoding="utf-8")
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), "--set", "speed=3"]) == 2


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_modules_that_moved_are_found_with_a_warning(old: str, new: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}") as told:
        module = import_module(old)
    assert told[0].filename == import_module.__code__.co_filename  # frames of the system left out
    own = {n: v for n, v in vars(import_module(new)).items() if not n.startswith("_")}
    assert own.items() <= vars(module).items()


def test_the_map_of_the_house_names_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    house = text[text.index("## The house") :]
    inside = ROOT / "src" / "radial"
    rooms = {path.name + "/" for path in inside.iterdir() if (path / "__init__.py").is_file()}
    rooms |= {path.stem for path in inside.glob("[a-z]*.py")}
    listed = re.findall(r"^\| (`.*?`) \|", house, flags=re.MULTILINE)
    assert {name for row in listed for name in re.findall(r"`(.*?)`", row)} == rooms
    for path in re.findall(r"`((?:training|scoring|study|evaluation|metrics)/\w+)", house):
        assert (inside / f"{path}.py").is_file() or (inside / path).is_dir(), path
