"""Runs the text of a Metal kernel on the host, with every memory access checked."""
