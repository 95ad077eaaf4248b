"""Tables as a PyKEEN model that gives the same scores, less the margin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.pykeen import to_pykeen as factories
from fedkge.models import MODELS, Tables
from fedkge.models.rotate import RotatE
from fedkge.models.transd import TransD
from fedkge.models.transe import TransE
from fedkge.models.transh import TransH
from fedkge.models.transm import TransM
from fedkge.models.transr import TransR

UNBOUNDED = 1e30  #: a norm that nothing reaches; PyKEEN shortens what TransR has projected, we do not


class Parts(NamedTuple):
    """A model in PyKEEN's words: an interaction, its options, what belongs to entities and relations."""

    interaction: str | type
    options: Mapping[str, Any]
    entities: Sequence[Tensor]  # each [n_entities, ...]
    relations: Sequence[Tensor]  # each [n_relations, ...]


def to_pykeen(tables: Tables, graph: Graph) -> Any:
    """A `pykeen.models.ERModel` on the CPU over the graph's ids and names, with copies of the rows.

    `score_hrt` gives `tables.score` minus the model's margin (a product has none): the order is the same.
    Norms and constraints of training are not carried over; the rows stay as they are until trained further.
    """
    name = MODELS.name_of(tables.model)
    if name not in CONVERSIONS:
        supported = ", ".join(sorted(CONVERSIONS))
        raise ConfigError(f"model.name: {name} has no like in PyKEEN (supported: {supported})")
    try:
        from pykeen.models import ERModel
        from pykeen.nn.init import PretrainedInitializer
    except ImportError:
        raise MissingPackage("pykeen", "making a PyKEEN model", "pykeen") from None
    training, *_ = factories(graph)
    if training is None:
        raise DataError("train: no triples; PyKEEN makes no model without")
    parts = CONVERSIONS[name](tables.to("cpu"))

    def representations(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
        return [
            {"shape": x.shape[1:], "dtype": x.dtype, "initializer": PretrainedInitializer(_as_real(x))}
            for x in tensors
        ]

    return ERModel(
        triples_factory=training,
        random_seed=0,  # nothing is drawn: every row is given
        interaction=parts.interaction,
        interaction_kwargs=dict(parts.options),
        entity_representations_kwargs=representations(parts.entities),
        relation_representations_kwargs=representations(parts.relations),
    ).eval()


def _as_real(rows: Tensor) -> Tensor:
    """PyKEEN keeps complex numbers as pairs."""
    return (torch.view_as_real(rows) if rows.is_complex() else rows).contiguous()


def _blocks(tables: Tables, axis: Axis) -> list[Tensor]:
    """The named blocks of a table's rows, in order."""
    return [tables.model.block(tables.table(axis), axis, block) for block in tables.model.blocks[axis]]


def _complex(tables: Tables, axis: Axis) -> Tensor:
    real, imaginary = _blocks(tables, axis)
    return torch.complex(real.contiguous(), imaginary.contiguous())


def _transe(tables: Tables) -> Parts:
    norm = cast(TransE, tables.model).norm
    return Parts("TransE", {"p": norm, "power_norm": False}, [tables.entities], [tables.relations])


def _transh(tables: Tables) -> Parts:
    norm = cast(TransH, tables.model).norm
    vector, normal = _blocks(tables, Axis.RELATION)
    return Parts("TransH", {"p": norm, "power_norm": norm == 2}, [tables.entities], [normal, vector])


def _transr(tables: Tables) -> Parts:
    model = cast(TransR, tables.model)
    vector, matrix = _blocks(tables, Axis.RELATION)
    across = matrix.unflatten(-1, (model.k, model.dim)).mT
    options = {"p": model.norm, "power_norm": model.norm == 2, "max_projection_norm": UNBOUNDED}
    return Parts("TransR", options, [tables.entities], [vector, across])


def _transd(tables: Tables) -> Parts:
    norm = cast(TransD, tables.model).norm
    options = {"p": norm, "power_norm": norm == 2}
    return Parts("TransD", options, _blocks(tables, Axis.ENTITY), _blocks(tables, Axis.RELATION))


def _transm(tables: Tables) -> Parts:
    """`w |h + r - t| = |w h + w r - w t|`: a TripleRE whose factors are the relation's weight."""
    vector, weight = _blocks(tables, Axis.RELATION)
    factor = weight.expand_as(vector)
    options = {"u": None, "p": cast(TransM, tables.model).norm, "power_norm": False}
    return Parts("TripleRE", options, [tables.entities], [factor, factor * vector, factor])


def _rescal(tables: Tables) -> Parts:
    dim = tables.model.dim
    return Parts("RESCAL", {}, [tables.entities], [tables.relations.unflatten(-1, (dim, dim))])


def _distmult(tables: Tables) -> Parts:
    return Parts("DistMult", {}, [tables.entities], [tables.relations])


def _complex_product(tables: Tables) -> Parts:
    return Parts("ComplEx", {}, [_complex(tables, Axis.ENTITY)], [_complex(tables, Axis.RELATION)])


def _rotate(tables: Tables) -> Parts:
    from fedkge.exports.moduli import RotatEByModuli

    phase = tables.relations * (pi / cast(RotatE, tables.model).range)
    rotation = torch.complex(phase.cos(), phase.sin())
    return Parts(RotatEByModuli, {}, [_complex(tables, Axis.ENTITY)], [rotation])


CONVERSIONS: Mapping[str, Callable[[Tables], Parts]] = {
    "complex": _complex_product,
    "distmult": _distmult,
    "rescal": _rescal,
    "rotate": _rotate,
    "transd": _transd,
    "transe": _transe,
    "transh": _transh,
    "transm": _transm,
    "transr": _transr,
}
