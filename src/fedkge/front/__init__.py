"""What a notebook and the command line have in common: data in, training, questions, tables out."""
