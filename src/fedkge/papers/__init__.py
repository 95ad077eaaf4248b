"""Tables and figures of papers: what is run for each, what came out, and the pages beside the papers."""
