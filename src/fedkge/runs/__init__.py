"""Configuration to data and folders, once."""
