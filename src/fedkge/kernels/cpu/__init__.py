"""Kernels for the CPU, compiled by numba; their results do not depend on the number of threads."""
