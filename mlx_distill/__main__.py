"""`python -m mlx_distill`: the same as the console script."""

import sys

from mlx_distill.cli import main

if __name__ == "__main__":
    sys.exit(main())
