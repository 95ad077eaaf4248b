"""What may travel: rows of tables in messages, how they are written, and what that weighs."""
