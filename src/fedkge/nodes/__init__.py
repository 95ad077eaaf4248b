"""Parties that own their state: a node receives messages, returns messages, and keeps its own folder."""
