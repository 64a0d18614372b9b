"""The kernels compiled for CUDA, as MLX compiles them, on a machine without a GPU."""
