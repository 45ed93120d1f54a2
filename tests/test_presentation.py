"""What pages share: light to import, the same frame and style in both, nothing breaks out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from radial.presentation import json_in_page, render


def test_light_to_import() -> None:
    """Terminal, status and every page use it."""
    code = (
        "import sys, radial.presentation\n"
        "heavy = {'torch', 'pandas', 'numpy', 'plotly', 'jinja2', 'rich'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_what_a_template_is_given_is_escaped_and_must_be_there(tmp_path) -> None:
    from jinja2 import UndefinedError

    template = tmp_path / "one.html"
    template.write_text('{% extends "base.html" %}{% block head %}{{ said }}{% endblock %}')
    text = render(template, said="<script>")
    assert "&lt;script&gt;" in text
    assert "--paper" in text  # the shared style
    with pytest.raises(UndefinedError, match="said"):
        render(template)


def test_json_stays_inside_its_script() -> None:
    held = {"name": "</script><script>alert(1)</script>", "line": "a\u2028b"}
    text = str(json_in_page(held))
    assert "<" not in text
    assert json.loads(text) == held
    with pytest.raises(ValueError, match="JSON"):
        json_in_page({"x": float("nan")})
