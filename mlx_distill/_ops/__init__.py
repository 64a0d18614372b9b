"""Autograd wiring, launches, the plain-MLX path; validation and reduction beside them."""
