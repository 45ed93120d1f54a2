"""A page in headless Chromium: what a script in it finds, and what the browser complains of."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

# What a probe ends with: its findings in the title, whatever letters they are made of.
TELL = 'document.title = "probe " + btoa(unescape(encodeURIComponent(JSON.stringify(found))));'


def browse(
    text: str, probe: str, folder: Path, width: int = 1280, server: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The findings of ``probe``, put into the page's head, and the lines of the console.

    With ``server`` the page is asked for there, not from the disk.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("no chromium found: the page is not tried in a browser")
    file = folder / "page.html"
    file.write_text(text.replace("<head>", f"<head>{probe}", 1), encoding="utf-8")
    options = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
        --disable-background-networking --disable-component-update --disable-sync
        --virtual-time-budget=30000 --enable-logging=stderr --v=0 --dump-dom"""
    size, profile = f"--window-size={width},1000", f"--user-data-dir={folder / 'profile'}"
    place = f"{server}/page.html" if server else file.as_uri()
    done = subprocess.run(
        [browser, *options.split(), size, profile, place],
        capture_output=True, text=True, timeout=180, check=True, encoding="utf-8",
    )  # fmt: skip
    complaints = [s for s in done.stderr.splitlines() if "CONSOLE" in s or "Uncaught" in s]
    title = next(iter(re.findall(r"<title>probe (.*?)</title>", done.stdout)), "e30=")
    return json.loads(base64.b64decode(title)), complaints
