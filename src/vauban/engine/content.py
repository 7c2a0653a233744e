"""What a base classifier consists of, as a hash: attributes, tensors, code and captured values, and the modules it comes from.

Code outside installed packages is *own* code, and is hashed. Code of installed packages and of Vauban is hashed by its name, but
what its objects hold (attributes, captured values) is hashed like anything else.
"""

from __future__ import annotations

import copyreg
import functools
import importlib.util
import sys
import sysconfig
import types
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

MAINS = ("__main__", "__mp_main__")

_DEEPEST = 60  # what is nested deeper is hashed by its type
_PLAIN = (str, bytes, bytearray, bool, int, float, complex, range, type(None), type(...), type(NotImplemented))
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, array)
_SHOWN = (PurePath, slice, torch.dtype, torch.memory_format, torch.layout, np.dtype)
_NATIVE = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ClassMethodDescriptorType, np.ufunc),
)
_BY_TYPE = (torch.device, torch.Generator, np.random.Generator, np.random.BitGenerator, np.random.RandomState)
"""Where a model computes is not what it is, and the state of a generator changes with every number drawn."""
_OWN_AFFAIR = frozenset(
    {"builtins", "logging", "threading", "_thread", "weakref", "_weakref", "_weakrefset", "io", "_io"}
    | {"random", "_random", "multiprocessing", "asyncio", "concurrent", "contextvars", "_contextvars"}
    | {"contextlib", "os", "posix", "nt", "itertools", "abc", "_abc", "ctypes", "_ctypes", "warnings"}
    | {"subprocess", "socket", "tempfile"}
)
"""Modules of the interpreter whose objects (locks, loggers, files, iterators) change without the model being another one."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_BOOKKEEPING = frozenset(
    {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
    | {"_is_full_backward_hook", "_compiled_call_impl", "_graph", "_backward_pre_hooks"}
    | {"_backward_hooks", "_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks"}
    | {"_load_state_dict_post_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"}
    | {"_forward_pre_hooks_with_kwargs", "_forward_pre_hooks", "_forward_hooks", "_is_torch_compile"}
)
"""Attributes of torch modules that are hashed elsewhere, or have no part in scores (`_graph`: torch.fx has its `_code` too)."""
_OF_CLASSES = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"}
    | {"__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__"}
    | {"__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__"}
)


def content_sha256(value: Any) -> tuple[str, set[str]]:
    """The sha256 of everything that a value holds, and the names of the modules that its own code is in."""
    content = _Content({}, {}, set())
    content.add(value)
    return content.digest.hexdigest(), content.modules


def tensors_sha256(module: torch.nn.Module, digest: Any) -> None:
    """Add every parameter and buffer to a digest: name, dtype, shape and bytes."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(_bytes_of(tensor))


def file_of(name: str) -> Path | None:
    """The source file of a module; None where it has none."""
    try:
        module = sys.modules.get(name)
        place = module.__file__ if module is not None else getattr(importlib.util.find_spec(name), "origin", None)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(place) if place and place.endswith(".py") and Path(place).is_file() else None


def installed(file: Path) -> bool:
    """Whether a file belongs to an installed package."""
    path, places = file.resolve(), ("stdlib", "platstdlib", "purelib", "platlib")
    return any(path.is_relative_to(Path(sysconfig.get_path(place)).resolve()) for place in places)


class _Content:
    """A digest to which values are added.

    `done`: objects and their hashes, by id; `open`: levels of the objects that are being hashed, by id, since an object may hold
    itself; `modules`: names of the modules of own code.
    """

    def __init__(self, done: dict[int, tuple[Any, bytes]], open_objects: dict[int, int], modules: set[str]):
        self.digest, self.done, self.open, self.modules = sha256(), done, open_objects, modules

    def put(self, kind: str, content: str | bytes | memoryview = b"") -> None:
        """Add bytes with their kind and number, so that no two sequences of values give the same bytes."""
        content = content.encode(errors="surrogatepass") if isinstance(content, str) else content
        self.digest.update(f"{kind} {len(content)}\n".encode())
        self.digest.update(content)

    def add(self, value: Any) -> None:
        """Add the content of a value."""
        key = id(value)
        if type(value) in _PLAIN:
            self.put(type(value).__name__, repr(value))
        elif key in self.open:
            self.put("outer", str(self.open[key]))
        elif key not in self.done and len(self.open) >= _DEEPEST:
            self.put("deep", _name(type(value)))
        else:
            if key not in self.done:
                self.done[key] = (value, self._hashed(value))
            self.put("object", self.done[key][1])

    def _hashed(self, value: Any) -> bytes:
        outer, self.digest, self.open[id(value)] = self.digest, sha256(), len(self.open)
        try:
            self._add(value)
            return self.digest.digest()
        finally:
            self.digest = outer
            del self.open[id(value)]

    def _add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, np.ndarray | np.generic):
            self._add_array(np.asarray(value))
        elif isinstance(value, types.ModuleType):
            self.put("module", value.__name__)
            self._note(value.__name__)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, _NATIVE):
            owner = getattr(value, "__self__", None)
            self.put("native", f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}")
            self.add(None if isinstance(owner, types.ModuleType) else owner)
        elif isinstance(value, _SHOWN):
            self.put(_name(type(value)), str(value))
        else:
            self.add(type(value))
            self._add_elements(value)
            self._add_attributes(value)

    def _add_elements(self, value: Any) -> None:
        """Add what an object contains besides its attributes."""
        if isinstance(value, dict | types.MappingProxyType):
            self._add_all("pairs", (part for pair in value.items() for part in pair))
        elif isinstance(value, list | tuple | deque | array):
            self._add_all("elements", value)
        elif isinstance(value, set | frozenset):
            self.put("set", "".join(sorted(self._apart(one) for one in value)))
        elif isinstance(value, functools.partial | functools.partialmethod):
            self._add_all("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType | staticmethod | classmethod):
            self._add_all("method", (value.__func__, getattr(value, "__self__", None)))
        elif isinstance(value, property):
            self.add(value.fget)
        elif isinstance(value, functools._lru_cache_wrapper):
            self.add(value.__wrapped__)
        elif isinstance(value, _PLAIN):
            plain: Any = next(one for one in _PLAIN if isinstance(value, one))
            self.put(plain.__name__, plain.__repr__(value))

    def _add_attributes(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, torch.nn.Module):
            self._add_module(value)
        elif not _closed(kind):
            own, state = _members(value), getattr(value, "__dict__", None)
            if isinstance(state, dict):
                own |= state
            elif not own and not isinstance(value, (*_PLAIN, *_CONTAINERS)):
                own["reduced"] = _reduced(value)
            self._add_named(own)

    def _add_all(self, kind: str, values: Iterable[Any]) -> None:
        values = list(values)
        self.put(kind, str(len(values)))
        for one in values:
            self.add(one)

    def _add_named(self, values: Mapping[str, Any]) -> None:
        """Add values by name; those that torch.compile leaves on what it has compiled are left out."""
        for key, value in sorted(values.items(), key=lambda pair: str(pair[0])):
            if not str(key).lstrip("_").startswith("torchdynamo"):
                self.put("attribute", str(key))
                self.add(value)

    def _apart(self, value: Any) -> str:
        """The hash of an element of a set, which does not depend on the elements before it: their order is arbitrary."""
        plain = type(value) in _PLAIN
        other = self if plain else _Content(dict(self.done), dict(self.open), self.modules)
        outer, other.digest = other.digest, sha256()
        other.add(value)
        found, other.digest = other.digest.hexdigest(), outer
        return found

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        self.put("tensor", f"{tensor.dtype} {list(tensor.shape)}")
        try:
            self.put("bytes", _bytes_of(tensor))
        except (RuntimeError, TypeError, NotImplementedError):  # sparse, quantised, or without data
            self.put("without bytes", str(tensor.layout))

    def _add_array(self, values: np.ndarray[Any, Any]) -> None:
        self.put("array", f"{values.dtype} {values.shape}")
        if values.dtype.hasobject:
            self._add_all("objects", values.ravel().tolist())
        else:
            self.put("bytes", np.ascontiguousarray(values).tobytes())

    def _add_module(self, module: torch.nn.Module) -> None:
        """Add a torch module: its tensors, its parts, its attributes, and the hooks that change its scores."""
        parts = {f"part {name}": part for name, part in module.named_children()}
        if type(module).__module__.startswith("torch._"):  # torch.compile around another module
            self._add_named(parts)
            return
        own = {key: value for key, value in vars(module).items() if key not in _BOOKKEEPING}
        tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        self._add_named({**own, **parts, **{f"tensor {name}": tensor for name, tensor in tensors}})
        for hooks in _HOOKS:
            self._add_all(hooks, vars(module).get(hooks, {}).values())
        if isinstance(module, torch.jit.ScriptModule):
            self.add(getattr(module, "code", None))

    def _add_class(self, kind: type) -> None:
        """Add a class: its name, and if it is own code, what it and its bases define."""
        self.put("class", _name(kind))
        if self._note(kind.__module__):
            self._add_all("bases", kind.__bases__)
            skipped = (types.MemberDescriptorType, types.GetSetDescriptorType)
            defined = {key: value for key, value in vars(kind).items() if key not in _OF_CLASSES}
            self._add_named({key: value for key, value in defined.items() if not isinstance(value, skipped)})

    def _add_function(self, function: types.FunctionType) -> None:
        """Add a function: the values it has captured, and if it is own code, this code and the global values that it uses."""
        compiled_from = vars(function).get("_torchdynamo_orig_callable")
        if compiled_from is not None:
            self.add(compiled_from)
            return
        where = str(function.__globals__.get("__name__"))
        self.put("function", f"{where}.{function.__qualname__}")
        if self._note(where):
            self.add(function.__code__)
            used = set(_names(function.__code__)) & set(function.__globals__)
            self._add_named({name: function.__globals__[name] for name in used})
        self._add_all("captured", [_inside(cell) for cell in function.__closure__ or ()])
        self._add_all("defaults", (function.__defaults__, function.__kwdefaults__))
        self._add_named(vars(function))

    def _add_code(self, code: types.CodeType) -> None:
        self.put("code", code.co_code)
        self.put("exceptions", code.co_exceptiontable)
        self._add_all("names", code.co_names)
        self._add_all("constants", code.co_consts)

    def _note(self, module: str) -> bool:
        """Whether a module is own code; its name is kept if so."""
        own = _own(module)
        self.modules |= {module} if own else set()
        return own


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@functools.cache
def _own(name: str) -> bool:
    """Whether a module is own code: not Vauban, not of an installed package, not the interpreter's."""
    root, file, module = name.split(".")[0], file_of(name), sys.modules.get(name)
    if name in MAINS:
        return True
    if root == "vauban" or root in sys.stdlib_module_names:
        return False
    if file is not None:
        return not installed(file)
    if root != name:
        return _own(root)
    return module is None or (getattr(module, "__file__", None) is None and getattr(module, "__spec__", None) is None)


def _closed(kind: type) -> bool:
    """Whether the attributes of such objects have no part in what a model answers."""
    where = kind.__module__
    return where.split(".")[0] in _OWN_AFFAIR or where.startswith("torch._") or issubclass(kind, _BY_TYPE)


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that code uses, and the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return NotImplemented


def _members(value: Any) -> dict[str, Any]:
    """The values of an object's slots that are set."""
    found = {}
    for base in (one for one in type(value).__mro__ if "__slots__" in vars(one)):
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                found[f"{base.__qualname__}.{name}"] = getattr(value, name)
    return found


def _reduced(value: Any) -> Any:
    """What pickle would keep of an object without attributes, such as a fitted tree of another library; None if nothing."""
    try:
        registered = copyreg.dispatch_table.get(type(value))
        return value.__reduce_ex__(4) if registered is None else registered(value)
    except Exception:
        return None
