"""docs/architecture.md says which room may import which: the imports must agree with it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("sampler", "cli", "perf", "fastrl")
ROW = re.compile(r"^    (\w+) {2,}(.*)$", re.MULTILINE)


def rooms_of_the_map() -> dict[str, set[str]]:
    """The block "Who may import whom" of the document: room -> the rooms that it may import."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = text.split("## Who may import whom", 1)[1].split("\n## ", 1)[0]
    return {room: set(imports.replace("-", "").split()) for room, imports in ROW.findall(block)}


def room_of(module: str) -> str:
    """sampler.shm.arena -> shm; sampler.config -> config; cli.train -> cli; sampler -> api."""
    parts = module.split(".")
    if parts[0] != "sampler":
        return parts[0]
    return parts[1] if len(parts) > 1 else "api"


def files() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """The project's modules that a file imports anywhere: at its top, in functions, for types."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they lead"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole in modules else node.module)
    return names & modules.keys()


@pytest.fixture(scope="module")
def arrows() -> dict[str, dict[str, list[str]]]:
    """room -> imported room -> "module -> module" for every import between two rooms."""
    modules = files()
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for module, path in modules.items():
        for target in imported(path, modules):
            if room_of(module) != room_of(target):
                found[room_of(module)][room_of(target)].append(f"{module} -> {target}")
    return found


def test_every_room_is_on_the_map():
    assert {room_of(module) for module in files()} == set(rooms_of_the_map())


def test_rooms_import_only_what_the_map_allows(arrows):
    allowed = rooms_of_the_map()
    wrong = [
        line
        for room, targets in arrows.items()
        for target, lines in targets.items()
        if target not in allowed[room]
        for line in lines
    ]
    assert not wrong, "\n".join(wrong)


def test_the_map_names_no_import_that_is_not_there(arrows):
    unused = [
        f"{room} -> {target}"
        for room, targets in rooms_of_the_map().items()
        for target in targets
        if target not in arrows[room]
    ]
    assert not unused, "\n".join(unused)


def test_no_arrow_climbs(arrows):
    """The map lists rooms from the ground up: each imports only those above it in the list."""
    rooms = list(rooms_of_the_map())
    list(TopologicalSorter(rooms_of_the_map()).static_order())  # raises CycleError
    climbing = [
        f"{room} -> {target}"
        for room, targets in arrows.items()
        for target in targets
        if rooms.index(target) > rooms.index(room)
    ]
    assert not climbing, "\n".join(climbing)


def test_what_rollout_workers_load_needs_no_torch():
    modules = "sampler.rollout_worker.main", "sampler.shm.shared", "sampler.runtime.local_worker"
    code = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert result.stdout.strip() == "False", result.stderr
