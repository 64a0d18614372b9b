"""Knowledge-distillation losses for MLX: logits in, loss out."""

try:
    import mlx.core as _mx
except ImportError as exc:
    raise ImportError(
        "mlx_distill needs MLX, which was not found or has no library for this machine. "
        "On Linux install it with one extra: pip install 'mlx-distill[cpu]', "
        "'mlx-distill[cuda12]' or 'mlx-distill[cuda13]'."
    ) from exc
del _mx

from mlx_distill._ops.options import Backend as Backend
from mlx_distill._ops.options import Reduction as Reduction
from mlx_distill.errors import ArgumentTypeError as ArgumentTypeError
from mlx_distill.errors import BackendError as BackendError
from mlx_distill.errors import DistillError as DistillError
from mlx_distill.errors import DtypeMismatchError as DtypeMismatchError
from mlx_distill.errors import EmptyInputError as EmptyInputError
from mlx_distill.errors import LengthMismatchError as LengthMismatchError
from mlx_distill.errors import OutOfRangeError as OutOfRangeError
from mlx_distill.errors import RankMismatchError as RankMismatchError
from mlx_distill.errors import ShapePairMismatchError as ShapePairMismatchError
from mlx_distill.errors import UnsupportedDtypeError as UnsupportedDtypeError
from mlx_distill.functional import js_div_loss as js_div_loss
from mlx_distill.functional import kl_div_loss as kl_div_loss
from mlx_distill.losses import JSDivLoss as JSDivLoss
from mlx_distill.losses import KLDivLoss as KLDivLoss

__version__ = "0.1.0"

__all__ = [
    "ArgumentTypeError",
    "Backend",
    "BackendError",
    "DistillError",
    "DtypeMismatchError",
    "EmptyInputError",
    "JSDivLoss",
    "KLDivLoss",
    "LengthMismatchError",
    "OutOfRangeError",
    "RankMismatchError",
    "Reduction",
    "ShapePairMismatchError",
    "UnsupportedDtypeError",
    "__version__",
    "js_div_loss",
    "kl_div_loss",
]
