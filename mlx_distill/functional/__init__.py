"""The losses as functions: logits in, loss out."""

from mlx_distill.functional.js_div import js_div_loss as js_div_loss
from mlx_distill.functional.kl_div import kl_div_loss as kl_div_loss
