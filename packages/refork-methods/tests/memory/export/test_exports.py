"""Exports work where they land: a package whose tests run, skills of the format, a folder for a server."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from refork.errors import BadInput
from refork.sandbox import Limits, Sandbox
from refork_methods.memory.export import export_mcp, export_package, export_skills, record
from refork_methods.memory.export.skills import skill_name
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.tool import Tool

FIND = '''def find_person(apis, tools, *, name: str) -> object:
    """Find a person by "name"

    Args:
        name: string \\\\ whole
    """
    rows = []
    for page in range(10):
        part = apis.pay.find_people(name=name, page=page)
        if not part:
            break
        rows.extend(part)
    return next(row for row in rows if row["name"] == name)
'''
PAY = '''def pay_person(apis, tools, *, name: str, amount: float, note: str = "it's \\'due\\'") -> object:
    """Pay a person."""
    person = tools.find_person(name=name)
    return apis.pay.send(user_id=person["id"], amount=amount, note=note)
'''
TEXT, NUMBER = {"type": "string", "description": "for example 'a|b'"}, {"type": "number"}
REGISTRY = ToolRegistry((
    Tool("t1", "find_person", FIND, 'Find a person by "name"',
         {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
         ("pay.find_people",), "p1", ("find Ann Lee", "who is Bo Ek?")),
    Tool("t2", "pay_person", PAY, "Pay a person.",
         {"type": "object", "properties": {"name": TEXT, "amount": NUMBER, "note": TEXT},
          "required": ["name", "amount"]},
         ("tools.find_person", "pay.send"), "p2", ("pay Ann Lee $3: rent\n---", "pay Bo Ek $5")),
))  # fmt: skip
PEOPLE = [{"id": 1, "name": "Ann Lee"}, {"id": 2, "name": "Ann Lees"}]


def environment(name, arguments):
    if name == "pay.find_people":
        return [one for one in PEOPLE if arguments["name"] in one["name"]] if arguments["page"] == 0 else []
    return {"sent": arguments}


@pytest.fixture(scope="module")
def recordings():
    with Sandbox(Limits(seconds=60)) as sandbox:
        return [
            record(REGISTRY, sandbox, "pay_person", {"name": "Ann Lee", "amount": 3.5}, environment),
            record(REGISTRY, sandbox, "find_person", {"name": "Ann Lees"}, environment),
        ]


def test_a_recording_keeps_calls_through_other_tools(recordings):
    assert [name for name, _, _ in recordings[0].calls] == ["pay.find_people", "pay.find_people", "pay.send"]
    assert recordings[0].value == {"sent": {"user_id": 1, "amount": 3.5, "note": "it's 'due'"}}
    with Sandbox(Limits(seconds=60)) as sandbox, pytest.raises(BadInput, match="gave no value"):
        record(REGISTRY, sandbox, "find_person", {"name": "nobody"}, environment)


def run_tests(folder):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    code = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(folder)]
    return subprocess.run(code, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_packages_own_tests_run_and_notice_a_change(tmp_path, recordings):
    folder = tmp_path / "out"
    paths = export_package(REGISTRY, folder, name="pay_tools", recordings=recordings)
    assert all(path.is_file() for path in paths)
    done = run_tests(folder)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    source = folder / "src/pay_tools/functions/pay_person.py"
    source.write_text(source.read_text().replace('person["id"]', 'person["id"] + 1'))
    done = run_tests(folder)
    assert done.returncode == 1
    assert "1 failed, 3 passed" in done.stdout


def test_the_package_is_used_as_its_page_says(tmp_path):
    folder = tmp_path / "out"
    export_package(REGISTRY, folder, name="pay_tools")
    code = (
        "import json, inspect; from pay_tools import Tools, FUNCTIONS\n"
        "seen = []\n"
        "def call(name, arguments):\n"
        "    seen.append(name)\n"
        "    return [] if arguments['page'] else [{'id': 7, 'name': 'Bo'}]\n"
        "tools = Tools(call)\n"
        "print(json.dumps([tools.find_person(name='Bo'), seen, str(inspect.signature(Tools.pay_person)), "
        "Tools.find_person.__doc__]))\n"
    )
    env = {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    value, seen, signature, doc = json.loads(done.stdout)
    assert value == {"id": 7, "name": "Bo"}
    assert seen == ["pay.find_people"] * 2
    assert signature == "(self, *, name: str, amount: float, note: str = \"it's 'due'\") -> Any"
    assert doc.startswith('Find a person by "name"')
    page = (folder / "README.md").read_text()
    assert "Calls, itself or through other tools: `pay.find_people`, `pay.send`, `tools.find_person`." in page
    assert "outside any sandbox" in page
    assert "a\\|b" in page


def test_the_package_is_built_by_a_standard_tool(tmp_path):
    tomllib = pytest.importorskip("tomllib")
    export_package(REGISTRY, tmp_path / "out", name="pay_tools", version="1.2")
    project = tomllib.loads((tmp_path / "out/pyproject.toml").read_text())
    assert project["project"]["name"] == "pay-tools"
    assert project["project"]["version"] == "1.2"
    assert (
        tmp_path / "out" / project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"][0] / "py.typed"
    ).exists()


ITEMS = (
    MemoryItem("i1", "plan", "1. Log in.\n2. Pay: carefully #now", query="pay Ann: $3"),
    MemoryItem("i2", "fact", "Lists are paged."),
    MemoryItem("i3", "pitfall", "Token is old -> calls fail -> log in again."),
    MemoryItem("i4", "fact", "This was wrong.", valid=False),
    MemoryItem("i5", "plan", "This too.", valid=False),
)


def test_skills_have_the_format(tmp_path):
    export_skills(REGISTRY, tmp_path / "skills", items=ITEMS)
    folders = sorted(path for path in (tmp_path / "skills").iterdir())
    assert [folder.name for folder in folders] == [
        "environment-notes", "find-person", "pay-person", "plan-1-log-in-2-pay-carefully-now",
    ]  # fmt: skip
    for folder in folders:
        text = (folder / "SKILL.md").read_text()
        _, front, body = text.split("---\n", 2)
        fields = yaml.safe_load(front)
        assert fields["name"] == folder.name
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
        assert len(fields["name"]) <= 64
        assert 0 < len(fields["description"]) <= 1024
        assert "\n" not in fields["description"]
        assert set(fields) <= {"name", "description", "metadata"}
        assert all(isinstance(value, str) for value in fields.get("metadata", {}).values())
        assert body.strip()
    assert (tmp_path / "skills/pay-person/scripts/pay_person.py").read_text() == PAY
    notes = (tmp_path / "skills/environment-notes/SKILL.md").read_text()
    assert "Lists are paged." in notes
    assert "log in again" in notes
    everything = "".join(path.read_text() for path in (tmp_path / "skills").rglob("*.md"))
    assert "This was wrong" not in everything
    assert "This too" not in everything
    assert "pay Ann Lee $3: rent ---" in (tmp_path / "skills/pay-person/SKILL.md").read_text()


def test_skill_names_stay_apart_and_short():
    taken = set()
    assert [skill_name("Pay Ann!", taken), skill_name("pay_ann", taken)] == ["pay-ann", "pay-ann-2"]
    assert len(skill_name("word " * 40, taken)) <= 60
    assert skill_name("日本", taken) == "skill"
    assert skill_name("x" * 99, taken) == "skill-2"


def test_the_servers_folder_says_how_to_start_it(tmp_path):
    export_mcp(REGISTRY, tmp_path / "mcp", call="shop.env:call")
    entry = json.loads((tmp_path / "mcp/mcp.json").read_text())["mcpServers"]["memory-tools"]
    assert entry["command"] == sys.executable
    assert entry["args"][-2:] == ["--call", "shop.env:call"]
    assert ToolRegistry.from_bytes((tmp_path / "mcp/tools.json").read_bytes()) == REGISTRY
    assert "pay.send" in (tmp_path / "mcp/README.md").read_text()


def test_refusals(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    (tmp_path / "empty").mkdir()
    for export in (export_package, export_skills, export_mcp):
        with pytest.raises(BadInput, match="not an empty folder"):
            export(REGISTRY, tmp_path / "full")
        with pytest.raises(BadInput, match="no"):
            export(ToolRegistry(), tmp_path / "new")
    with pytest.raises(BadInput, match="cannot name a package"):
        export_package(REGISTRY, tmp_path / "new", name="a-b")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["empty", "full"]
    export_skills(REGISTRY, tmp_path / "empty")
    assert (tmp_path / "empty/pay-person/SKILL.md").exists()
