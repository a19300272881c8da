"""The files of the page: what is vendored, and the one script that a shared file has."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tomllib
from importlib.resources import files

import pytest

from refork.errors import BadInput
from refork.viewer.live.page import ASSETS, MODULES, asset, bundle, live_page, shared_page

FOLDER = files("refork.viewer.live").joinpath("web")


def test_what_is_vendored_is_what_its_list_says():
    vendor = FOLDER.joinpath("vendor")
    listed = tomllib.loads(vendor.joinpath("VENDORED.toml").read_text("utf-8"))["file"]
    there = {one.name for one in vendor.iterdir() if not one.name.startswith(".")}
    assert there == {"VENDORED.toml", "LICENSES.txt"} | {one["name"] for one in listed}
    for one in listed:
        data = vendor.joinpath(one["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        assert b"sourceMappingURL" not in data
        assert f"== {one['project']} ==" in vendor.joinpath(one["notices"]).read_text("utf-8")


def test_a_duration_is_rounded_before_it_is_told_in_minutes():
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    shown = "console.log([0.04, 9.94, 9.96, 59.4, 59.7, 119.4, 119.7, null].map(duration).join())"
    source = f"{FOLDER.joinpath('text.js').read_text('utf-8')}\n{shown}"
    ran = subprocess.run(
        [node, "--input-type=module"], input=source, capture_output=True, text=True, check=True
    )
    wanted = ["0.0 s", "9.9 s", "10 s", "59 s", "1 min 00 s", "1 min 59 s", "2 min 00 s", "–"]
    assert ran.stdout.strip().split(",") == wanted


def test_every_file_is_served_and_nothing_else():
    there = {one.name for one in FOLDER.iterdir() if one.name.endswith((".js", ".css"))}
    assert there == {name for name in ASSETS if "/" not in name}
    for name in ASSETS:
        assert asset(name)
    for name in ("../api.py", "vendor/VENDORED.toml", "main.js/../main.js"):
        with pytest.raises(BadInput):
            asset(name)


def test_modules_come_after_what_they_import():
    for place, name in enumerate(MODULES):
        source = asset(name).decode()
        folder = name.rpartition("/")[0]
        for other in re.findall(r'^import .*?from\s*"\./([^"]+)"', source, re.MULTILINE):
            assert f"{folder}/{other}".lstrip("/") in MODULES[:place], (name, other)


def test_nothing_is_fetched_from_elsewhere_and_no_markup_is_trusted():
    for name in MODULES:
        source = asset(name).decode()
        found = re.findall(r"https?://[^\"'` )]+", source)
        assert all(one.startswith("http://www.w3.org/") for one in found), name
        if not name.startswith("vendor/"):
            for word in ("innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "document.write"):
                assert word not in source, (name, word)
    assert "url(" not in asset("page.css").decode()


def test_the_bundle_has_no_modules_left():
    script = bundle()
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert script.count("const module_") == len(MODULES)


def test_data_cannot_leave_its_element():
    evil = "</script><script>alert(1)</script><!--"
    for page in (live_page({"x": evil}), shared_page({"x": evil})):
        assert evil not in page
        assert page.count('id="start"') == 1
    digest = re.search(r"script-src '(sha256-[^']+)'", shared_page({}))
    assert digest is not None
