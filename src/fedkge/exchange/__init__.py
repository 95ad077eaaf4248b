"""What may travel: rows of tables in envelopes, how they are written, and what that weighs."""
