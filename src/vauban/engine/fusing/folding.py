"""Rewrites a flat graph: batch norms go into the convolutions before them, sums and ReLUs into those they follow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from vauban.engine.fusing import operators
from vauban.engine.fusing.graph import aten, calls, constant, value

# of conv2d: input, weight, bias, stride, padding, dilation, groups
_DEFAULTS: list[Any] = [None, None, None, [1, 1], [0, 0], [1, 1], 1]
CONVOLUTIONS = (aten.conv2d.default, operators.conv_relu, operators.conv_add_relu)


def folded(module: fx.GraphModule) -> None:
    """Rewrite the graph in place: the same function but for rounding. Constants that change are computed in float64."""
    for node in calls(module.graph, aten.conv2d.default):
        _spell_out(node)
    for node in calls(module.graph, aten.batch_norm.default):
        _fold_batch_norm(module, node)
    for node in calls(module.graph, aten.relu.default):
        _fuse_relu(module, node)
    for node in calls(module.graph, aten.max_pool2d.default):
        _replace_max_pool(node)
    module.graph.eliminate_dead_code()
    without_unused(module)


def without_unused(module: fx.GraphModule) -> None:
    """Drop constants that no node reads any more."""
    used = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    for name in set(module._buffers) - used:
        delattr(module, name)


def _spell_out(node: fx.Node) -> None:
    """Give a convolution all its arguments by position, with pairs for sides."""
    given: list[Any] = [*node.args, *_DEFAULTS[len(node.args) :]]
    pairs = [list(side) * 2 if len(side) == 1 else list(side) for side in given[3:6]]
    node.args = (*given[:3], *pairs, given[6])


def _fold_batch_norm(module: fx.GraphModule, node: fx.Node) -> None:
    given: list[Any] = list(node.args)
    inside, training, eps = given[0], given[5], float(given[7])
    weight, bias, mean, variance = (value(module, one) for one in given[1:5])
    if training or mean is None or variance is None:
        return
    scale = (variance.double() + eps).rsqrt()
    scale = scale if weight is None else scale * weight.double()
    shift = -mean.double() * scale + (0.0 if bias is None else bias.double())
    if _is_alone(inside, aten.conv2d.default) and (kernel := value(module, inside.args[1])) is not None:
        before = value(module, inside.args[2])
        new = kernel.double() * scale[:, None, None, None]
        moved = shift if before is None else before.double() * scale + shift
        _replace(module, node, aten.conv2d.default, inside.args, weight=new, bias=moved)
        return
    sides = (1, -1) + (1,) * (len(_shape(inside)) - 2)
    graph = module.graph
    with graph.inserting_before(node):
        constants = [constant(module, graph, one.reshape(sides)) for one in (scale, shift)]
        affine = graph.call_function(operators.affine, (inside, *constants))
    affine.meta = dict(node.meta)
    node.replace_all_uses_with(affine)
    graph.erase_node(node)


def _fuse_relu(module: fx.GraphModule, node: fx.Node) -> None:
    inside: Any = node.args[0]
    if _is_alone(inside, aten.conv2d.default):
        _replace(module, node, operators.conv_relu, inside.args)
    elif _is_alone(inside, aten.add.Tensor) and not inside.kwargs and _same_shape(*inside.args):
        _fuse_sum(module, node, inside)


def _fuse_sum(module: fx.GraphModule, node: fx.Node, total: fx.Node) -> None:
    """relu(conv(x) + z). Where z is a convolution too, its bias is added with the other's."""
    added: list[Any] = sorted(total.args, key=list(module.graph.nodes).index, reverse=True)
    last, other = added if _is_alone(added[0], aten.conv2d.default) else reversed(added)
    kernel = value(module, last.args[1]) if _is_alone(last, aten.conv2d.default) else None
    if kernel is None:
        return
    bias = value(module, last.args[2])
    bias = torch.zeros(len(kernel), dtype=kernel.dtype, device=kernel.device) if bias is None else bias
    more = value(module, other.args[2]) if _is_alone(other, aten.conv2d.default) else None
    if more is not None:
        bias = bias.double() + more.double()
        other.args = (*other.args[:2], None, *other.args[3:])
    x, weight, _, *sides = last.args
    _replace(module, node, operators.conv_add_relu, (x, weight, other, None, *sides), bias=bias)


def _replace(
    module: fx.GraphModule,
    node: fx.Node,
    target: Any,
    args: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> None:
    """Put a convolution in a node's place, with constants in place of its weight and bias where they are given."""
    graph, new = module.graph, list(args)
    at = 3 if target is operators.conv_add_relu else 2
    if bias is None and new[at] is None:
        kernel = value(module, new[1])
        bias = None if kernel is None else torch.zeros(len(kernel), dtype=kernel.dtype, device=kernel.device)
    with graph.inserting_before(node):
        if weight is not None:
            new[1] = constant(module, graph, weight)
        if bias is not None:
            new[at] = constant(module, graph, bias)
        put = graph.call_function(target, tuple(new))
    put.meta = dict(node.meta)
    node.replace_all_uses_with(put)
    graph.erase_node(node)
    graph.eliminate_dead_code()


def _replace_max_pool(node: fx.Node) -> None:
    given: list[Any] = [*node.args, *[None, None, [], [0, 0], [1, 1], False][len(node.args) :]]
    x, kernel, stride, padding, dilation, ceil = given
    if not ceil and set(dilation) == {1} and not node.kwargs:
        pairs = [list(side) * 2 if len(side) == 1 else list(side) for side in (kernel, stride or kernel, padding)]
        node.target, node.args = operators.max_pool, (x, *pairs)


def _is_alone(node: Any, target: Any) -> bool:
    """Whether a node calls `target` and only one other node uses its result."""
    return isinstance(node, fx.Node) and node.target is target and len(node.users) == 1


def _same_shape(*nodes: Any) -> bool:
    return all(isinstance(node, fx.Node) for node in nodes) and len({_shape(node) for node in nodes}) == 1


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
