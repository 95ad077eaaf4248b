"""What is known: graphs, the files they come in, and the ways to deal them out."""
