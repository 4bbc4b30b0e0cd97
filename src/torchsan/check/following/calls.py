"""Calls: the program's own functions and classes are followed, torch's are modelled, others are unknown."""

from __future__ import annotations

import ast
import re
from typing import Any

from torchsan.check.following.builtin_calls import BuiltinCalls
from torchsan.check.following.machine import CallCutShort
from torchsan.check.following.method_calls import MethodCalls
from torchsan.check.following.parts import CALL_ALONE, MAX_DEPTH, MAX_DEPTH_ALONE, MOST_RECURSION
from torchsan.check.following.scope import Scope
from torchsan.check.modelling.names import (
    GRAD_MODES,
    WITH_PARAMETERS,
)
from torchsan.check.modelling.questions import answer_of
from torchsan.check.modelling.values import (
    Class,
    Function,
    Instance,
    Layer,
    Library,
    Mapping,
    Method,
    Plain,
    Sequence,
    Tensor,
    parameters_of,
    tensors_in,
    truth,
)
from torchsan.check.reading.program import FunctionInfo

# Names of what is called when a model is used, mostly without gradients.
_FOR_USE = re.compile(r"infer|predict|generate|_test(?:_|$)|evaluate|greedy|beam")
# Names of what gives up the state that a module keeps.
_RESETS = re.compile(r"reset|detach|clear|forget", re.I)
# Decorators that may switch gradients off.
_SWITCHES = re.compile(r"no_?grad|inference|eval_mode|evaluat", re.I)


class Calls(MethodCalls, BuiltinCalls):
    """The calling half of the interpreter."""

    def value_Call(self, node: ast.Call, scope: Any) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self.super_of(scope)
        function = self.value(node.func, scope)
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args += self.spread(self.value(arg.value, scope), arg.value)
            else:
                args.append(self.value(arg, scope))
        kwargs = {k.arg: self.value(k.value, scope) for k in node.keywords if k.arg is not None}
        for keyword in node.keywords:
            if keyword.arg is None:
                spread = self.value(keyword.value, scope)
                if isinstance(spread, Mapping):
                    kwargs.update({k: v for k, v in spread.items.items() if isinstance(k, str)})
        self.hand_over(function, args)
        self.note_reset(function, args)
        before = [len(a.storage.writes) if isinstance(a, Tensor) else 0 for a in args]
        result = self.call_value(function, args, kwargs, node)
        if not isinstance(function, Library | Method) and result is not None:
            self.note_overwritten(args, before, result, node, scope)
        return result

    def note_overwritten(self, args: list[Any], before: list[int], result: Any, node: ast.Call, scope: Any) -> None:
        """Remember arguments that an in-place layer inside the callee has changed."""
        for arg, value, count in zip(node.args, args, before, strict=False):
            if not isinstance(value, Tensor) or not isinstance(arg, ast.Name) or value is result:
                continue
            write = next((w for w in value.storage.writes[count:] if w.origin is not None), None)
            if write is not None and isinstance(result, Tensor) and result.storage is not value.storage:
                scope.overwritten[arg.id] = (value, write, node)

    def call_value(self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        if isinstance(function, Function):
            return self.call_function(function, args, kwargs, node)
        if isinstance(function, Class):
            return self.instantiate(function, args, kwargs, node)
        if isinstance(function, Instance | Layer):
            return self.call_part(function, args, kwargs, node)
        if isinstance(function, Method):
            return self.call_method(function, args, kwargs, node)
        if isinstance(function, Library):
            found = self.imported(function.name) if "." in function.name else None
            if found is not None:
                return self.call_value(found, args, kwargs, node)
            return self.call_named(function.name, args, kwargs, node)
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node)

    def call_part(self, part: Instance | Layer, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """What a part does hangs on the answers by which it was chosen: `act = ReLU() if last else Identity()`."""
        before = self.machine.inside
        self.machine.inside = (*before, *(answer for answer in part.inside if answer not in before))
        try:
            if isinstance(part, Instance):
                return self.call_instance(part, args, kwargs, node)
            return self.torch.call_layer(part, args, kwargs, node)
        finally:
            self.machine.inside = before

    def hand_over(self, function: Any, args: list[Any]) -> None:
        """What a function of another package makes of a module that it is given is not known."""
        if isinstance(function, Library) and "." in function.name and not function.name.startswith("torch."):
            self.mark_handed(args)

    def note_reset(self, function: Any, args: list[Any]) -> None:
        """`reset_net(model)`, `model.reset()`: what the module keeps from call to call may be gone, somehow."""
        if not self.machine.backwards:
            return
        bound = function.bound if isinstance(function, Function) else None
        asked = isinstance(bound, Instance) and bound.module and function.info.name not in ("forward", "__call__")
        if asked or any(isinstance(value, Instance) and value.module for value in args):
            self.machine.perhaps_reset = True
            name = function.info.name if isinstance(function, Function) else getattr(function, "name", "")
            self.machine.said_reset = self.machine.said_reset or _RESETS.search(name) is not None

    def mark_handed(self, args: list[Any]) -> None:
        for value in args:
            if isinstance(value, Instance | Layer):
                if isinstance(value, Instance):
                    value.handed = True
                for parameter in parameters_of(value):
                    parameter.storage.handed = True

    def call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
        info = function.info
        answer = answer_of(info) if not args else None
        if answer is not None:
            return Plain(answer, True)
        if self.depth >= (MAX_DEPTH_ALONE if self.lazy else MAX_DEPTH):
            return self.machine.unknown([t for a in args for t in tensors_in(a)], node)
        if info.elsewhere or (info.abstract and self.depth):
            return self.machine.unknown([t for a in args for t in tensors_in(a)], node)
        if self.active.count(info) >= MOST_RECURSION:
            return self.machine.unknown()
        scope = Scope(function.scope, function)
        given = [function.bound, *args] if function.bound is not None else list(args)
        self.bind_parameters(info, scope, given, kwargs)
        if isinstance(info.node, ast.Lambda):
            self.depth += 1
            try:
                return self.value(info.node.body, scope)
            finally:
                self.depth -= 1
        previous = self.machine.mode
        for decorator in info.decorators:
            unsure = "unsure" if _SWITCHES.search(decorator) and self.machine.mode == "grad" else self.machine.mode
            self.machine.switch(GRAD_MODES.get(decorator, unsure))
        if _FOR_USE.search(info.name) and self.machine.mode == "grad":
            # Its author hints at when it is called.
            self.machine.mode = "unsure"
        self.depth += 1
        self.active.append(info)
        before, self.program = self.program, info.program or self.program
        floor, inside = self.floor, self.machine.inside
        if self.lazy and self.depth > 1:
            self.floor = max(self.floor, self.left - CALL_ALONE)
        try:
            self.run_block(info.node.body, scope)
        except CallCutShort:
            if floor > self.left or not self.floor:
                raise
            scope.returned = self.machine.unknown([t for a in args for t in tensors_in(a)], node)
        finally:
            self.program, self.floor = before, floor
            self.machine.inside = inside
            self.depth -= 1
            self.active.pop()
            self.machine.mode = previous
        return Sequence(scope.yielded) if info.generator else scope.returned

    def bind_parameters(self, info: FunctionInfo, scope: Any, given: list[Any], kwargs: dict[str, Any]) -> None:
        spec = info.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        for name, value in zip(names, given, strict=False):
            scope.names[name] = value
        if spec.vararg is not None:
            rest_of = kwargs.pop(f"*{spec.vararg.arg}", None)
            scope.names[spec.vararg.arg] = rest_of or Sequence(given[len(names) :])
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        rest = {k: v for k, v in kwargs.items() if k not in known}
        scope.names.update({k: v for k, v in kwargs.items() if k in known})
        if spec.kwarg is not None:
            scope.names[spec.kwarg.arg] = Mapping(dict(rest))
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None})
        for name in known - scope.names.keys():
            default = defaults.get(name)
            scope.names[name] = self.machine.unknown() if default is None else self.default(name, default, info, scope)

    def default(self, name: str, node: ast.expr, info: FunctionInfo, scope: Any) -> Any:
        """A default is made once and shared by all calls."""
        known = self.defaults.get(node)
        if known is None:
            # Its names are those of the file that the function is in.
            before, self.program = self.program, info.program or self.program
            try:
                known = self.defaults[node] = self.value(node, scope.outer)
            finally:
                self.program = before
            # A default that is a name, such as a global counter, was meant to be shared.
            if isinstance(known, Tensor) and known.sure and isinstance(node, ast.Call):
                known.storage.kind, known.storage.name, known.storage.owner = "default", name, info.name
        return known

    def super_of(self, scope: Any) -> Any:
        found = scope
        while found is not None and not (found.function and found.function.info.owner):
            found = found.outer
        if found is None:
            return Plain()
        receiver = next(iter(found.names.values()), None)
        return Method(receiver, "super", ast.Constant(found.function.info.owner.name))

    def find_method(self, cls: Class, name: str, after: str = "") -> Function | None:
        """A method of a class or of its bases in this file; `after` skips up to that class (super())."""
        if not after and name in cls.info.methods:
            return Function(cls.info.methods[name], cls.scope)
        for base in cls.info.bases:
            found = self.find_in(cls.scope, base)
            if isinstance(found, Class) and found is not cls:
                method = self.find_method(found, name, "" if after in ("", cls.info.name) else after)
                if method is not None:
                    return method
        return None

    def find_in(self, scope: Any, name: str) -> Any:
        found = scope.find(name)
        if found is None and (self.lazy or scope.module.program is not None):
            found = self.find_global(name, scope)
        if found is None and "." in name:
            found = self.imported(name)
        return self.imported(found.name) if isinstance(found, Library) else found

    def is_module(self, cls: Class, seen: int = 0) -> bool:
        for base in cls.info.bases:
            found = self.find_in(cls.scope, base)
            if isinstance(found, Class) and seen < 8:
                if self.is_module(found, seen + 1):
                    return True
            elif base.startswith("torch.nn.") or base.endswith(("Module", "Model")):
                return True
        return False

    def inherits(self, cls: Class, names: tuple[str, ...], seen: int = 0) -> bool:
        for base in cls.info.bases:
            if base in names:
                return True
            found = self.find_in(cls.scope, base)
            if isinstance(found, Class) and seen < 8 and self.inherits(found, names, seen + 1):
                return True
        return False

    def instantiate(self, cls: Class, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Instance:
        made = self.new_instance(cls)
        start = self.find_method(cls, "__init__")
        if start is not None and self.lazy and made.module:
            made.start = self.start_scope(made, start, args, kwargs)
        elif start is not None:
            start.bound = made
            self.call_function(start, args, kwargs, node)
        return made

    def run_start(self, instance: Instance, cls: Class) -> bool:
        """Run `__init__` after all; False when it is running or has run."""
        start, scope = cls.info.methods.get("__init__"), instance.start
        if start is None or scope is None or self.depth > MAX_DEPTH_ALONE + 2:
            return False
        instance.start = None
        given = {k: v for k, v in scope.names.items() if v is not instance}
        self.depth += 1
        before, self.machine.inside = self.machine.inside, instance.inside
        try:
            self.call_function(Function(start, cls.scope, instance), [], given, start.node)
        finally:
            self.depth -= 1
            self.machine.inside = before
            instance.start = scope
        return True

    def new_instance(self, cls: Class) -> Instance:
        if cls.info.module is None:
            cls.info.module = self.is_module(cls)
        made = Instance(cls, module=cls.info.module, inside=self.machine.inside)
        self.instances.append(made)
        return made

    def start_scope(self, made: Instance, start: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        scope = Scope(start.scope, start)
        self.bind_parameters(start.info, scope, [made, *args], kwargs)
        return scope

    def lazy_attribute(self, instance: Instance, name: str) -> Any:
        """What `__init__` would have put there, worked out without the rest of it."""
        cls: Any = instance.cls
        for _ in range(6):
            value = cls.info.assigned.get(name)
            if value is None or isinstance(value, ast.Constant):
                made = self.later_module(instance, cls, name)
                if made is not None:
                    return made
            built_up = value is not None and (name in cls.info.built_up or self.left_out(value, instance, cls))
            if built_up and self.run_start(instance, cls):
                return instance.attributes.get(name)
            if value is not None:
                made = self.chosen_in(value, instance, cls)
                if isinstance(made, Plain) and name in instance.attributes:
                    return instance.attributes[name]
                instance.attributes[name] = made
                if instance.handed:
                    self.mark_handed([made])
                return made
            bases = [self.find_in(cls.scope, base) for base in cls.info.bases]
            cls = next((b for b in bases if isinstance(b, Class)), None)
            if cls is None:
                return None
        return None

    def left_out(self, value: ast.expr, instance: Instance, cls: Class) -> bool:
        """Whether the arguments of this very object keep `__init__` from making it: `if relu: self.act = ReLU()`."""
        tests = cls.info.conditions(value) if instance.start is not None else []
        return any(truth(self.value_in(test, instance.start, cls)) is (not answer) for test, answer in tests)

    def chosen_in(self, value: ast.expr, instance: Instance, cls: Class) -> Any:
        """An attribute, made under the answers that `__init__` asks for, not under those of whoever reads it first."""
        before = self.machine.inside
        tests = cls.info.conditions(value)
        self.machine.inside = (*instance.inside, *((self.program.words(test), answer) for test, answer in tests))
        try:
            return self.value_in(value, instance.start, cls)
        finally:
            self.machine.inside = before

    def later_module(self, instance: Instance, cls: Class, name: str) -> Any:
        """The module that some other method puts there: `self.net = Net(…)` in `_build`."""
        value = cls.info.assigned_later.get(name)
        if value is None:
            return None
        scope = Scope(cls.scope)
        scope.names["self"] = instance
        made = self.value_in(value, scope, cls)
        if not (isinstance(made, Layer) or (isinstance(made, Instance) and made.module)):
            return None
        instance.attributes[name] = made
        return made

    def value_in(self, node: ast.expr, scope: Any, cls: Class) -> Any:
        """An expression of the file that a class is in."""
        before, self.program = self.program, cls.info.program or self.program
        try:
            return self.value(node, scope)
        finally:
            self.program = before

    def call_instance(self, instance: Instance, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        method = self.find_method(instance.cls, "forward" if instance.module else "__call__")
        if method is None:
            method = self.find_method(instance.cls, "__call__") or self.find_method(instance.cls, "forward")
        if method is None:
            layer = self.layer_of(instance, node)
            if layer is not None:
                return self.torch.call_layer(layer, args, kwargs, node)
            given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
            return self.machine.unknown(given, node)
        method.bound = instance
        return self.call_function(method, args, kwargs, node)

    def layer_of(self, instance: Instance, node: Any) -> Layer | None:
        """The layer of torch.nn that a class of the file is built on."""
        known = instance.attributes.get(" layer")
        if known is None:
            name = self.torch_base(instance.cls)
            if not name:
                return None
            known = instance.attributes[" layer"] = self.torch.construct(name, [], {}, node)
        return known if isinstance(known, Layer) else None

    def torch_base(self, cls: Class, depth: int = 0) -> str:
        for base in cls.info.bases:
            space, _, last = base.rpartition(".")
            if space == "torch.nn" and (last in WITH_PARAMETERS or last == "Sequential"):
                return last if last != "Sequential" else ""
            found = self.find_in(cls.scope, base)
            if isinstance(found, Class) and depth < 5:
                name = self.torch_base(found, depth + 1)
                if name:
                    return name
        return ""

    def instance_attribute(self, instance: Instance, name: str, node: ast.AST) -> Any:
        if name in instance.attributes:
            found = instance.attributes[name]
            used = (n.freed is not None for t in tensors_in(found) for n in t.nodes())
            self.machine.carried = self.machine.carried or any(used)
            return found
        method = self.find_method(instance.cls, name)
        if method is not None:
            decorators = method.info.decorators
            if "staticmethod" in decorators:
                return method
            method.bound = instance.cls if "classmethod" in decorators else instance
            if "property" in decorators or "functools.cached_property" in decorators:
                return self.call_function(method, [], {}, node)
            return method
        if name == "training":
            return Plain(True, True)
        if instance.start is not None:
            found = self.lazy_attribute(instance, name)
            if found is not None:
                return found
        for item in instance.cls.info.node.body:
            if isinstance(item, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in item.targets):
                return self.value_in(item.value, instance.cls.scope, instance.cls)
        layer = self.layer_of(instance, node) if name in ("weight", "bias") else None
        if layer is not None and name in layer.parameters:
            return layer.parameters[name]
        return Method(instance, name, node)
