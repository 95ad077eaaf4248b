"""Embeddings out, by name: files, and PyKEEN models."""

from fedkge.exports.files import Format, load_embeddings, save_embeddings
from fedkge.exports.pykeen import to_pykeen

__all__ = ["Format", "load_embeddings", "save_embeddings", "to_pykeen"]
