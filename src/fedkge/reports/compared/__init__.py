"""Runs beside each other: experiments over seeds, rows of tables, differences and how sure they are."""
