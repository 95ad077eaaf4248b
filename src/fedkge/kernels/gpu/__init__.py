"""Kernels for NVIDIA GPUs, written in Triton; all but `touched` can be captured in a CUDA graph."""
