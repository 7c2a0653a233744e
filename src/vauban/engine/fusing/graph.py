"""A torch module as one flat graph of tensor operations over its constants, which the other files here rewrite."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from vauban.engine.backends.protocol import CannotRun
from vauban.engine.failed_calls import reason

aten = torch.ops.aten

_IN_PLACE = {
    aten.relu_.default: aten.relu.default,
    aten.add_.Tensor: aten.add.Tensor,
    aten.silu_.default: aten.silu.default,
}
_NEW = {  # operations whose result is a tensor of its own, not a view of another
    aten.conv2d.default,
    aten.batch_norm.default,
    aten.linear.default,
    *_IN_PLACE.values(),
}
_CHECKS = {aten._assert_tensor_metadata.default, operator.eq}


def flat(module: nn.Module, shape: Sequence[int], device: torch.device) -> fx.GraphModule:
    """The graph of a module in evaluation mode for float32 views of this shape [rows, ...].

    It has one placeholder, the views, and one output, the scores; tensors of the module are constants that later rewriting may
    replace. Nothing in it changes a tensor in place.
    """
    try:
        with torch.inference_mode(False), torch.no_grad():
            program = torch.export.export(module, (torch.zeros(*shape, device=device),))
    except Exception as problem:
        cause = problem.__cause__ or problem
        raise CannotRun(
            f"the model has no fixed graph to fuse ({reason(cause)}): use --backend torch, which runs any model, or take out "
            "what decides by the values of a tensor"
        ) from problem
    graph, tensors = program.graph_module.graph, {**program.state_dict, **program.constants}
    holder = nn.Module()
    for spec, node in zip(program.graph_signature.input_specs, list(graph.find_nodes(op="placeholder")), strict=True):
        if spec.target is not None and isinstance(tensors.get(spec.target), Tensor):
            put(holder, graph, node, tensors[spec.target].detach())
    _one_output(graph)
    _without_checks(graph)
    _without_changes(graph)
    return fx.GraphModule(holder, graph)


def put(holder: nn.Module, graph: fx.Graph, node: fx.Node, tensor: Tensor) -> None:
    """Replace a node by a constant tensor."""
    with graph.inserting_before(node):
        node.replace_all_uses_with(constant(holder, graph, tensor))
    graph.erase_node(node)


def constant(holder: nn.Module, graph: fx.Graph, tensor: Tensor) -> fx.Node:
    """A new node for a constant tensor, at the place where the graph inserts."""
    name = next(name for i in itertools.count(len(holder._buffers)) if not hasattr(holder, name := f"constant{i}"))
    holder.register_buffer(name, tensor)
    node = graph.create_node("get_attr", name)
    node.meta["val"] = tensor
    return node


def value(module: nn.Module, node: Any) -> Tensor | None:
    """The tensor behind a node that is a constant; None for anything else."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found = getattr(module, str(node.target))
    return found if isinstance(found, Tensor) else None


def calls(graph: fx.Graph, *targets: Any) -> Iterator[fx.Node]:
    """The nodes that call one of these operations, in order."""
    yield from [node for node in graph.nodes if node.op == "call_function" and node.target in targets]


def _one_output(graph: fx.Graph) -> None:
    views = list(graph.find_nodes(op="placeholder"))
    (end,) = graph.find_nodes(op="output")
    given: Any = end.args[0]
    if len(views) != 1 or not isinstance(given, list | tuple) or len(given) != 1:
        count = len(given) if isinstance(given, list | tuple) else 1
        raise CannotRun(
            f"the model's graph has {len(views)} inputs and {count} outputs: one that maps views to scores and changes nothing "
            "of its own is needed to fuse it; use --backend torch"
        )
    end.args = (given[0],)


def _without_checks(graph: fx.Graph) -> None:
    """Remove what only asserts the type that tensors had in the module."""
    for node in calls(graph, *_CHECKS):
        if not node.users:
            graph.erase_node(node)


def _without_changes(graph: fx.Graph) -> None:
    """Replace changes in place by new tensors; refuse those of which it is not clear that nothing else sees them."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not node.target._schema.is_mutable:
            continue
        changed: Any = node.args[0]
        alone = node.target in _IN_PLACE and changed.target in _NEW
        if not alone or any(order[user] > order[node] for user in changed.users):
            raise CannotRun(
                f"the model changes a tensor in place ({node.target}) that other layers may read: use --backend torch"
            )
        node.target = _IN_PLACE[node.target]
