"""Write every Python example of README, docs and docstrings to a file of its own, for mypy."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from doctest import DocTestParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples_of_page(text: str) -> str:
    """Return the code of a page's fences, which share one namespace."""
    blocks = FENCE.findall(text)
    return "\n".join(code if kind == "python" else without_prompts(code) for kind, code in blocks)


def examples_of_docstrings(text: str) -> Iterator[str]:
    """Yield the code of each docstring that holds an example."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node) or ""
            if ">>>" in docstring:
                yield without_prompts(docstring)


def without_prompts(text: str) -> str:
    """Return the statements of a session, without prompts and output."""
    return "".join(example.source for example in DocTestParser().get_examples(text))


def main(target: Path) -> None:
    """Write the examples into `target`; fail if a source that should have some has none."""
    target.mkdir(parents=True, exist_ok=True)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {
        page.stem.lower().replace("-", "_"): examples_of_page(page.read_text("utf-8"))
        for page in pages
    }
    for module in sorted((ROOT / "mlx_distill").rglob("*.py")):
        for number, code in enumerate(examples_of_docstrings(module.read_text("utf-8"))):
            found[f"{module.parent.name}_{module.stem}_{number}"] = code
    found = {name: code for name, code in found.items() if code}
    if "readme" not in found or not any(name.startswith("functional_") for name in found):
        sys.exit("no examples found in README or in the functions' docstrings")
    for name, code in found.items():
        (target / f"example_{name}.py").write_text(code, encoding="utf-8")
    print(f"{len(found)} files of examples in {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
