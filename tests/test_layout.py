"""What holds for the package's files: import direction, size, documentation, kernels as files."""

from __future__ import annotations

import ast
import inspect
import statistics
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import FunctionType

import pytest

import mlx_distill

PACKAGE = Path(mlx_distill.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
KERNELS = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".metal", ".h"})

# Each layer may import from itself and from these. The top level gathers the public names, and
# the commands stand beside the library as its users do.
ALLOWED = {
    "losses": {"functional", "_ops", "kernels", "errors"},
    "functional": {"_ops", "kernels", "errors"},
    "_ops": {"kernels", "errors"},
    "kernels": {"errors"},
    "errors": set(),
    "__init__": {"losses", "functional", "_ops", "errors"},
    "__main__": {"cli"},
    "cli": {"__init__", "losses", "functional", "_ops", "kernels", "errors"},
}


def layer_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py") if parts else "__init__"


def imported_layers(path: Path) -> Iterator[str]:
    """Yield the layer of each import of ours in `path`, imports inside functions included."""
    here = path.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["mlx_distill", *here[: len(here) - node.level]] if node.level else []
            base += node.module.split(".") if node.module else []
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for package, *parts in targets:
            if package == "mlx_distill":
                first = PACKAGE / parts[0] if parts else PACKAGE
                is_layer = bool(parts) and (first.is_dir() or first.with_suffix(".py").is_file())
                yield parts[0] if is_layer else "__init__"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    layer = layer_of(path.relative_to(PACKAGE).parts)
    assert set(imported_layers(path)) <= ALLOWED[layer] | {layer}


def test_import_direction_test_sees_every_kind_of_import(tmp_path: Path) -> None:
    module = tmp_path / "probe.py"
    module.write_text(
        "import mlx_distill.losses.kl_div\n"
        "from mlx_distill import KLDivLoss\n"
        "from mlx_distill import functional\n"
        "def late() -> None:\n    from mlx_distill._ops.sums import sum_last_axis\n"
    )
    inside = PACKAGE / "kernels" / "__init__.py"
    assert inside.is_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "relative_to", lambda _self, _other: Path("kernels/probe.py"))
        assert set(imported_layers(module)) == {"losses", "__init__", "functional", "_ops"}


@pytest.mark.parametrize("path", [*MODULES, *KERNELS], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_file_is_longer_than_300_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_the_median_file_is_shorter_than_150_lines() -> None:
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES + KERNELS]
    assert statistics.median(lengths) < 150


def test_the_package_ships_its_types_and_kernels() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert {path.suffix for path in KERNELS} == {".metal", ".h"}


def test_the_version_has_one_place() -> None:
    assert version("mlx-distill") == mlx_distill.__version__


def public_names() -> list[str]:
    """Return the names that the top level re-exports, as X as X."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sorted(
        alias.name for node in imports for alias in node.names if alias.asname == alias.name
    )


def test_public_names_are_all_found() -> None:
    assert {"KLDivLoss", "js_div_loss", "DistillError", "Reduction"} <= set(public_names())
    assert not {name for name in dir(mlx_distill) if name[0].isupper()} - set(public_names())


@pytest.mark.parametrize("name", public_names())
def test_public_names_are_documented_and_annotated(name: str) -> None:
    subject = getattr(mlx_distill, name)
    if not (inspect.isclass(subject) or inspect.isfunction(subject)):
        assert name in {"Backend", "Reduction"}  # literals, documented in the API reference
        return
    assert inspect.getdoc(subject), f"{name} has no docstring"
    functions = [subject] if inspect.isfunction(subject) else own_public_functions(subject)
    for function in functions:
        assert_annotated(function)
        if not function.__name__.startswith("__"):
            assert inspect.getdoc(function), f"{function.__qualname__} has no docstring"


def own_public_functions(cls: type) -> list[FunctionType]:
    members = [value.fget if isinstance(value, property) else value for value in vars(cls).values()]
    return [
        member
        for member in members
        if isinstance(member, FunctionType)
        and (not member.__name__.startswith("_") or member.__name__ in {"__init__", "__call__"})
    ]


def assert_annotated(function: FunctionType) -> None:
    signature = inspect.signature(function)
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name != "self" and parameter.annotation is inspect.Parameter.empty
    ]
    assert not missing, f"{function}: {missing} not annotated"
    assert signature.return_annotation is not inspect.Signature.empty, function


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_python_string_holds_kernel_text(path: Path) -> None:
    words = ("threadgroup_barrier(", "simd_sum(", "__syncthreads(", "#include", "constexpr ")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [word for word in words if word in node.value]
            assert not found, f"line {node.lineno}: {found}"
