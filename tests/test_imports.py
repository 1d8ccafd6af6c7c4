"""The layout: imports point one way, files are short, names are documented, and importing is light."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import icrl_agents

ROOT = Path(icrl_agents.__file__).parents[1]
PACKAGES = ("icrl_envs", "icrl_agents")

# Modules of icrl_agents, lowest first; each imports from the lines above its own, and from inside itself.
ORDER = (
    {"locks", "notices", "settings", "checked"},
    {"arrays", "files", "machine", "distinct", "magnitudes", "krylov", "extras", "terminal", "pure", "global_streams"},
    {"blockwise", "distances", "links", "episode", "execution"},
    {"context"},
    {"eligibility", "kernels", "collection", "weighted_context", "divergence", "kernel_gradients"},
    {"kernel_matrix", "datasets", "possible_values", "ground_truth"},
    {"kernel_binding"},
    {"attention"},
    {"error_dynamics"},
    {"value_function"},
    {"prompt", "evaluators"},
    {"layers", "columns", "blocks"},
    {"judgement"},
    {"transformer"},
    {"structure"},
    {"checkpoint"},
    {"constructions", "compressed"},
    {"diagnostics", "adaptive"},
    {"pretraining", "control"},
    {"integrations"},
    {"studies"},
    {"command_line"},
    {"__main__", "__init__"},
)
# What a module imports from above, inside a function: saving and reading are methods of what is saved and read.
INSIDE_FUNCTIONS = {("transformer", "checkpoint"), ("context", "datasets")}

LONGEST = 250
LONGER = {  # path: the reason why it is longer
    "icrl_agents/context.py": "one class, whose constructor, assembly and TD errors share its invariants",
    "tests/test_collection.py": "one environment and one table of expected rows for all modes",
    "tests/test_kernels.py": "one list of kernels, which every test runs over",
    "tests/test_transformer.py": "one list of transformers, which every test runs over",
    "tests/test_linear_family.py": "the plain loops of four algorithms stand beside what they check",
    "tests/test_transfer.py": "one small study serves all of its tests",
}


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): ast.parse(path.read_text()) for path in sources(*PACKAGES)}


def imports(tree):
    """Yields (module, whether it is imported inside a function) for each import, of modules here in full."""
    inner = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [name if name in MODULES else str(node.module) for name in names]
        else:
            continue
        for target in dict.fromkeys(targets):
            yield target, id(node) in inner


def place(module):
    """The module of icrl_agents that ``module`` belongs to, and its line in ORDER."""
    top = [*module.split("."), "__init__"][1]
    found = [line for line, names in enumerate(ORDER) if top in names]
    assert found, f"{module}: say in ORDER which modules it may import"
    return top, found[0]


def test_environments_import_neither_torch_nor_agents():
    for module, tree in MODULES.items():
        if module.startswith("icrl_envs"):
            assert not {"torch", "icrl_agents"} & {target.split(".")[0] for target, _ in imports(tree)}, module


def test_imports_inside_the_agents_point_one_way():
    wrong = []
    for module, tree in MODULES.items():
        for target, inside in imports(tree):
            if not (module.startswith("icrl_agents") and target.startswith("icrl_agents")):
                continue
            (own, line), (other, lower) = place(module), place(target)
            if not (lower < line or own == other or (inside and (own, other) in INSIDE_FUNCTIONS)):
                wrong.append(f"{module} imports {target}")
    assert not wrong


def test_no_module_imports_itself_through_others():
    graph = {m: {t for t, inside in imports(tree) if t in MODULES and not inside} for m, tree in MODULES.items()}
    while free := {module for module, targets in graph.items() if not targets & set(graph)}:
        graph = {module: targets for module, targets in graph.items() if module not in free}
    assert not graph


def test_the_rules_see_what_they_forbid():
    tree = ast.parse("import torch.nn\ndef f():\n    from icrl_agents import kernels\nfrom icrl_agents.layers import A")
    found = [("torch.nn", False), ("icrl_agents.layers", False), ("icrl_agents.kernels", True)]
    assert list(imports(tree)) == found
    assert place("icrl_agents.layers.memory") == ("layers", 11)
    assert place("icrl_agents") == ("__init__", len(ORDER) - 1)


def test_no_file_is_too_long():
    lengths = {}
    for path in sources(*PACKAGES, "tests", "examples", "benchmarks"):
        lengths[path.relative_to(ROOT).as_posix()] = len(path.read_text().splitlines())
    assert {name for name, length in lengths.items() if length > LONGEST} == set(LONGER)


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_has_a_docstring(module):
    undocumented = []

    def visit(node, title):
        if not ast.get_docstring(node):
            undocumented.append(title)
        for child in node.body if not isinstance(node, ast.FunctionDef) else []:
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and not child.name.startswith("_"):
                visit(child, f"{title}.{child.name}")

    visit(MODULES[module], module)
    assert not undocumented


@pytest.mark.parametrize("module", [m for m, tree in MODULES.items() if "__all__" in ast.unparse(tree)])
def test_every_announced_name_exists(module):
    imported = importlib.import_module(module)
    for name in imported.__all__:
        assert hasattr(imported, name)
    assert len(set(imported.__all__)) == len(imported.__all__)


def test_importing_the_agents_is_light_until_a_name_is_used():
    code = (
        "import json, sys, icrl_agents\nbefore = list(sys.modules)\nicrl_agents.Context\n"
        "print(json.dumps([before, list(sys.modules)]))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert not {"torch", "numpy", "matplotlib", "metaworld", "mujoco", "safetensors"} & set(before)
    assert "torch" in after
    assert not {"matplotlib", "metaworld", "mujoco"} & set(after)
