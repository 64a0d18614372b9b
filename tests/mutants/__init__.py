"""Changes to the kernel texts, one at a time, each of which the host tests have to notice."""
