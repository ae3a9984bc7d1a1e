"""The project as a whole: what must agree between its files."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_the_location_has_one_name_in_workspace_and_pyproject() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (location,) = workspace["load_from"]
    assert location["python_file"]["location_name"] == project["tool"]["dg"]["project"]["code_location_name"]


def test_up_uses_the_same_dagster_settings_and_example_as_the_project() -> None:
    templates = ROOT / "flywheel" / "cli" / "templates"
    for name in ("dagster.yaml", "flywheel.yaml"):
        assert (templates / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_the_readme_file_tree_names_what_is_there() -> None:
    readme = (ROOT / "README.md").read_text()
    tree = readme.split("```text\n", 1)[1].split("```", 1)[0]
    named = set()
    for line in tree.splitlines():
        match = re.match(r"^( *)([\w./-]+?/?)(?: {2,}.*)?$", line)
        assert match, line
        depth, name = len(match[1]) // 2, match[2]
        parents = [] if depth == 0 else [parent for parent in named if parent.endswith("/")]
        assert depth == 0 or parents, line
        path = name if depth == 0 else _parent(tree, line) + name
        named.add(path)
        assert (ROOT / path).exists(), f"README names {path}, which is not there"
    packages = {f"flywheel/{p.name}/" for p in (ROOT / "flywheel").iterdir() if (p / "__init__.py").exists()}
    assert packages <= named, f"README's tree lacks {sorted(packages - named)}"


def _parent(tree: str, line: str) -> str:
    lines = tree.splitlines()
    depth = len(line) - len(line.lstrip())
    for earlier in reversed(lines[: lines.index(line)]):
        if len(earlier) - len(earlier.lstrip()) < depth:
            return earlier.split()[0] if not earlier.startswith(" ") else _parent(tree, earlier) + earlier.split()[0]
    return ""


def test_loading_definitions_imports_no_torch() -> None:
    code = (
        "import sys; import flywheel.definitions; "
        "heavy = {'torch', 'transformers', 'peft', 'evaluate', 'matplotlib'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_command_line_imports_neither_torch_nor_dagster() -> None:
    code = (
        "import sys; import flywheel.cli.__main__; "
        "heavy = {'torch', 'dagster', 'duckdb', 'pyarrow', 'sqlalchemy', 'fastapi'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_dependency_is_pinned_and_torch_as_decided() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    names = {_normal(name) for name in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    assert {_normal(re.match(r"[\w.-]+", line)[0]) for line in wanted} <= names
    assert pins["torch"] == "2.13.0"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
