"""Train a small teacher on real text, distil students, and measure whether it helped."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mlx_distill.cli.demo.options import LOSSES, DemoError, DemoOptions

EXTRA = ("matplotlib", "numpy", "rich", "tokenizers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    default = DemoOptions()
    parser.add_argument(
        "--steps",
        type=int,
        default=default.steps,
        help="training steps of each model (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=default.seed,
        help="seed of weights and batches (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=default.out, help="folder for results (default: %(default)s)"
    )
    parser.add_argument(
        "--loss",
        choices=(*LOSSES, "both"),
        default="both",
        help="what to distil with (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=default.temperature,
        help="temperature of the distillation losses (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Train, measure, print; 0 if the distilled students are closer, 1 if not, 2 if refused."""
    options = DemoOptions(
        steps=args.steps,
        seed=args.seed,
        out=args.out,
        losses=LOSSES if args.loss == "both" else (args.loss,),
        temperature=args.temperature,
    )
    try:
        options.check()
        from mlx_distill.cli.demo.runner import run_demo  # noqa: PLC0415 - needs the extra

        return 0 if run_demo(options) else 1
    except DemoError as exc:
        return _refuse(str(exc))
    except ImportError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        return _refuse(f"it needs {missing}: pip install 'mlx-distill[demo]'")


def _refuse(message: str) -> int:
    print(f"mlx-distill demo: {message}", file=sys.stderr)
    return 2
