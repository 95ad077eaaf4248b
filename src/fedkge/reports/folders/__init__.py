"""What run folders tell: options, journals, summaries."""
