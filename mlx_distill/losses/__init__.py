"""The losses as modules: options, and one call of the function."""

from mlx_distill.losses.js_div import JSDivLoss as JSDivLoss
from mlx_distill.losses.kl_div import KLDivLoss as KLDivLoss
