"""Command line: `mlx-distill demo` and `mlx-distill check`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mlx_distill import __version__
from mlx_distill.cli import check, demo


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; 2 for a wrong option, as argparse has it."""
    parser = argparse.ArgumentParser(
        prog="mlx-distill", description="Knowledge-distillation losses for MLX."
    )
    parser.add_argument("--version", action="version", version=f"mlx-distill {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in (("demo", demo), ("check", check)):
        help_text = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=help_text, description=help_text)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
