"""Sphinx configuration; nothing here needs a network, at build time or in the reader's browser."""

from __future__ import annotations

import doctest
from importlib.resources import files
from typing import TYPE_CHECKING

from docutils import nodes

import mlx_distill

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "mlx_distill"
author = "The mlx_distill authors"
project_copyright = "The mlx_distill authors"
release = version = mlx_distill.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"mlx_distill {release}"
html_static_path = ["_static", str(files("mathjax") / "static/mathjax/es5/tex-svg.js")]
html_css_files = ["wrap.css"]
mathjax_path = "tex-svg.js"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
autodoc_type_aliases = {name: f"mlx_distill.{name}" for name in ("Backend", "Reduction")}
python_maximum_signature_line_length = 80
# No inventory of MLX or Python can be read offline, and kernel handles are no public names.
nitpick_ignore_regex = [("py:.*", r"(mx|nn|mlx|collections|mlx_distill\.kernels)\..*")]

# Sphinx's default would not compare the messages of exceptions.
doctest_default_flags = doctest.ELLIPSIS

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def run_fenced_examples(_app: Sphinx, doctree: nodes.document) -> None:
    """Turn plain Markdown fences, which other sites show in colour, into doctests."""
    kinds = {"pycon": "doctest", "python": "testcode"}
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") in kinds and "testnodetype" not in block:
            block["testnodetype"] = kinds[block["language"]]
            block["groups"] = ["default"]
            block["options"] = {}


def setup(app: Sphinx) -> None:
    """Connect the handler above."""
    app.connect("doctree-read", run_fenced_examples)
