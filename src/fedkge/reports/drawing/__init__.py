"""Plots: what is drawn, as data for the page and as SVG."""
