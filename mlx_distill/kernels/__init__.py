"""Kernel texts, the dialect headers that carry them to each target, and their handles."""
