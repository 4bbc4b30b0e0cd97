"""Calls: the program's own functions and classes are followed, torch's are modelled, others are unknown."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from torchsan.check.torch_names import GRAD_MODES, RUN_QUESTIONS, TENSOR_ONLY, WITH_PARAMETERS, words
from torchsan.check.values import (
    Class,
    Function,
    Grad,
    Instance,
    Layer,
    Library,
    Mapping,
    Method,
    Node,
    Optimizer,
    Plain,
    Save,
    Sequence,
    Snapshot,
    Tensor,
    tensors_in,
)

if TYPE_CHECKING:
    from torchsan.check.machine import Machine
    from torchsan.check.program import FunctionInfo, Program
    from torchsan.check.torch_model import TorchModel

MAX_DEPTH = 14
MOST_ITEMS = 40
MAX_DEPTH_ALONE = 4
_BASIC_TYPES = frozenset({"Tensor", "list", "tuple", "dict", "set", "int", "float", "str", "bool"})
MOST_RECURSION = 3
_PLAIN_BUILTINS = words(
    """print len range int float str bool isinstance issubclass hasattr repr format id hash type abs round ord
    chr callable dir open input divmod any all"""
)


class Calls:
    """The calling half of the interpreter."""

    program: Program
    machine: Machine
    torch: TorchModel
    depth: int
    lazy: bool
    defaults: dict[ast.expr, Any]
    instances: list[Instance]
    active: list[FunctionInfo]

    if TYPE_CHECKING:

        def value(self, node: ast.expr, scope: Any) -> Any: ...
        def iterate(self, value: Any, node: ast.AST) -> list[Any]: ...
        def spread(self, value: Any, node: ast.AST) -> list[Any]: ...
        def assign(self, target: ast.expr, value: Any, scope: Any, node: ast.AST) -> None: ...
        def run_block(self, body: list[ast.stmt], scope: Any) -> str: ...
        def derived(self, value: Any) -> Any: ...
        def find_global(self, name: str) -> Any: ...
        @property
        def rounds(self) -> int: ...

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
        if isinstance(function, Instance):
            return self.call_instance(function, args, kwargs, node)
        if isinstance(function, Layer):
            return self.torch.call_layer(function, args, kwargs, node)
        if isinstance(function, Method):
            return self.call_method(function, args, kwargs, node)
        if isinstance(function, Library):
            return self.call_named(function.name, args, kwargs, node)
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node)

    # --- functions of the program -------------------------------------------------------------------

    def call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
        from torchsan.check.interpreter import Scope

        info = function.info
        if self.depth >= (MAX_DEPTH_ALONE if self.lazy else MAX_DEPTH):
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
            self.machine.mode = GRAD_MODES.get(decorator, self.machine.mode)
        if "inference" in info.name and self.machine.mode == "grad":
            # Its author says when it is called.
            self.machine.mode = "no_grad"
        self.depth += 1
        self.active.append(info)
        try:
            self.run_block(info.node.body, scope)
        finally:
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
            scope.names[spec.vararg.arg] = Sequence(given[len(names) :])
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
            known = self.defaults[node] = self.value(node, scope.outer)
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
        return self.find_global(name) if found is None and self.lazy else found

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
        try:
            self.call_function(Function(start, cls.scope, instance), [], given, start.node)
        finally:
            self.depth -= 1
            instance.start = scope
        return True

    def new_instance(self, cls: Class) -> Instance:
        made = Instance(cls, module=self.is_module(cls))
        self.instances.append(made)
        return made

    def start_scope(self, made: Instance, start: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        from torchsan.check.interpreter import Scope

        scope = Scope(start.scope, start)
        self.bind_parameters(start.info, scope, [made, *args], kwargs)
        return scope

    def lazy_attribute(self, instance: Instance, name: str) -> Any:
        """What `__init__` would have put there, worked out without the rest of it."""
        cls: Any = instance.cls
        for _ in range(6):
            value = cls.info.assigned.get(name)
            if value is not None and name in cls.info.built_up and self.run_start(instance, cls):
                return instance.attributes.get(name)
            if value is not None:
                made = self.value(value, instance.start)
                if isinstance(made, Plain) and name in instance.attributes:
                    return instance.attributes[name]
                instance.attributes[name] = made
                return made
            bases = [self.find_in(cls.scope, base) for base in cls.info.bases]
            cls = next((b for b in bases if isinstance(b, Class)), None)
            if cls is None:
                return None
        return None

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
            return instance.attributes[name]
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
                return self.value(item.value, instance.cls.scope)
        layer = self.layer_of(instance, node) if name in ("weight", "bias") else None
        if layer is not None and name in layer.parameters:
            return layer.parameters[name]
        return Method(instance, name, node)

    # --- methods of modelled values -----------------------------------------------------------------

    def call_method(self, method: Method, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        receiver, name = method.receiver, method.name
        if isinstance(receiver, Method) and receiver.name == "super":
            return self.call_super(receiver, name, args, kwargs, node)
        if isinstance(receiver, Tensor):
            if name in TENSOR_ONLY or receiver.sure or name.endswith("_"):
                receiver.sure = receiver.sure or name in TENSOR_ONLY
            return self.torch.call_method(receiver, name, args, kwargs, node)
        if isinstance(receiver, Optimizer):
            return self.torch.call_optimizer(receiver, name, args, node)
        if isinstance(receiver, Layer) or (isinstance(receiver, Instance) and receiver.module):
            return self.torch.call_module(receiver, name, args, kwargs, node)
        if isinstance(receiver, Instance) and name == "save_for_backward":
            receiver.attributes[" saved"] = Sequence(list(args))
            return Plain(None, True)
        if isinstance(receiver, Class) and name == "apply":
            return self.apply_function(receiver, args, node)
        if isinstance(receiver, Snapshot):
            return self.from_snapshot(receiver, name)
        if isinstance(receiver, Sequence | Mapping):
            return self.call_collection(receiver, name, args, node)
        if isinstance(receiver, Plain) and name not in ("apply",):
            return Plain()
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node)

    def call_super(self, held: Method, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        instance = held.receiver
        owner = held.node.value if isinstance(held.node, ast.Constant) else ""
        if isinstance(instance, Instance):
            holder = self.find_in(instance.cls.scope, str(owner))
            method = self.find_method(holder, name, str(owner)) if isinstance(holder, Class) else None
            if method is not None:
                method.bound = instance
                return self.call_function(method, args, kwargs, node)
            if name == "__init__" and args and self.inherits(instance.cls, ("torch.optim.Optimizer",)):
                groups = Mapping({"params": Sequence(self.iterate(args[0], node))})
                instance.attributes["param_groups"] = Sequence([groups])
            layer = self.layer_of(instance, node) if name == "forward" else None
            if layer is not None:
                return self.torch.call_layer(layer, args, kwargs, node)
            if name not in ("__init__", "forward") and instance.module:
                return self.torch.call_module(instance, name, args, kwargs, node)
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node)

    def from_snapshot(self, snapshot: Snapshot, name: str) -> Any:
        # Its items are aliases, but what becomes of them is not followed.
        return snapshot if name == "copy" else self.machine.unknown()

    def call_collection(self, owner: Sequence | Mapping, name: str, args: list[Any], node: ast.AST) -> Any:
        if isinstance(owner, Sequence):
            if name in ("append", "add", "appendleft") and args:
                self.note_kept_twice(owner, args[0], node)
                if len(owner.items) < MOST_ITEMS:
                    owner.items.append(args[0])
            elif name == "extend" and args and isinstance(args[0], Sequence):
                owner.items += args[0].items[:6]
            elif name == "insert" and len(args) > 1:
                owner.items.insert(0, args[1])
            elif name in ("pop", "popleft") and owner.items:
                return owner.items[-1]
            elif name == "copy":
                return Sequence(list(owner.items))
            elif name == "clear":
                owner.empty()
            return Plain()
        if name == "values":
            return Sequence(list(owner.items.values()))
        if name == "items":
            return Sequence(
                [Sequence([Plain(k, True) if isinstance(k, str | int) else Plain(), v]) for k, v in owner.items.items()]
            )
        if name in ("get", "pop", "setdefault") and args and isinstance(args[0], Plain):
            found = owner.items.get(args[0].value) if args[0].known else None
            return found if found is not None else self.machine.unknown()
        return Plain() if name in ("keys", "clear") else self.machine.unknown()

    def note_kept_twice(self, owner: Sequence, value: Any, node: ast.AST) -> None:
        """The same tensor appended again after a write: the entry before has changed with it."""
        if not isinstance(value, Tensor) or not value.sure or not isinstance(node, ast.Call):
            return
        if not node.args or not isinstance(node.args[0], ast.Name | ast.Attribute):
            return
        before = next((time for item, time in owner.kept if item is value), None)
        owner.kept.append((value, self.machine.clock))
        write = value.storage.written_after(before) if before is not None else None
        if write is not None and write.how == "op" and isinstance(node.func, ast.Attribute):
            tell = self.machine.tell
            name, held = tell.words(node.args[0]), tell.words(node.func.value)
            if name and held:
                self.machine.facts.append(tell.kept_twice(write, node, name, held))

    def apply_function(self, cls: Class, args: list[Any], node: ast.Call) -> Any:
        """`Scale.apply(x)` of a torch.autograd.Function written in this file."""
        forward = self.find_method(cls, "forward")
        given = [t for a in args for t in tensors_in(a)]
        place = node
        if forward is None or not self.inherits(cls, ("torch.autograd.Function", "Function")):
            return self.machine.unknown(given, place)
        context = Instance(cls)
        before = {id(t): len(t.storage.writes) for t in given}
        previous, self.machine.mode = self.machine.mode, "no_grad"
        try:
            returned = self.call_function(forward, [context, *args], {}, node)
        finally:
            self.machine.mode = previous
        marked = _calls(forward.info.node, "mark_dirty")
        result = self.of_custom(returned, given, before, marked, node)
        if isinstance(result, Tensor) and result is not returned and not result.view:
            self.keep_saved(result, context, given, cls.info.name, node)
        return result

    def keep_saved(self, result: Tensor, context: Instance, given: list[Tensor], name: str, node: ast.Call) -> None:
        """What `ctx.save_for_backward` was given is kept for the Function's backward."""
        grad = max((t.wants_grad for t in given), default=Grad.NO)
        if grad == Grad.NO or self.machine.mode != "grad":
            return
        result.node = Node(name, node, [n for t in given for n in t.nodes()])
        result.grad = grad
        for tensor in tensors_in(context.attributes.get(" saved")):
            time, certain = self.machine.clock, grad == Grad.YES
            result.node.saves.append(Save(tensor.storage, time, "saved tensor", None, certain))
            tensor.storage.saved = True

    def of_custom(
        self, returned: Any, given: list[Tensor], before: dict[int, int], marked: bool, node: ast.Call
    ) -> Any:
        place = node
        written = next((t for t in given if len(t.storage.writes) > before[id(t)]), None)
        if isinstance(returned, Tensor) and any(returned is t for t in given):
            if written is returned and not marked and self.machine.mode == "grad":
                made = self.machine.view_of(returned, place, "apply", "custom")
                made.base, made.leaf = returned, False
                made.origin = returned.storage.writes[-1].place
                return made
            return returned
        return self.machine.unknown(given, place)

    # --- named functions ----------------------------------------------------------------------------

    def call_named(self, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        if name in RUN_QUESTIONS:
            return Plain(RUN_QUESTIONS[name], True)
        if "." in name:
            from torchsan.check.program import canonical

            return self.torch.call_library(canonical(name), args, kwargs, node)
        builtin = getattr(self, f"builtin_{name}", None)
        if builtin is not None:
            return builtin(args, node)
        if name in _PLAIN_BUILTINS:
            return Plain()
        given = [t for v in (*args, *kwargs.values()) for t in tensors_in(v)]
        return self.machine.unknown(given, node, passes=False)

    def builtin_isinstance(self, args: list[Any], node: ast.Call) -> Any:
        """Known for layers, tensors and lists."""
        if len(args) != 2:
            return Plain()
        kinds = args[1].items if isinstance(args[1], Sequence) else [args[1]]
        names = {k.name.rpartition(".")[2] for k in kinds if isinstance(k, Library)}
        if len(names) != len(kinds):
            return Plain()
        if isinstance(args[0], Layer) and not any(n in ("Module", "object") or n.startswith("_") for n in names):
            return Plain(args[0].name in names, True)
        if isinstance(args[0], Tensor) and args[0].sure and names <= _BASIC_TYPES:
            return Plain("Tensor" in names, True)
        if isinstance(args[0], Sequence) and names <= _BASIC_TYPES:
            return Plain(bool(names & {"list", "tuple", "set"}), True)
        return Plain()

    def builtin_range(self, args: list[Any], node: ast.Call) -> Any:
        known = [a.value for a in args if isinstance(a, Plain) and a.known and isinstance(a.value, int)]
        if len(known) == len(args) and 1 <= len(known) <= 2 and len(range(*known)) <= 4:
            return Sequence([Plain(i, True) for i in range(*known)])
        return Sequence([Plain() for _ in range(self.rounds)])

    def builtin_zip(self, args: list[Any], node: ast.Call) -> Any:
        columns = [self.iterate(a, node) for a in args]
        return Sequence([Sequence(list(row)) for row in zip(*columns, strict=False)])

    def builtin_enumerate(self, args: list[Any], node: ast.Call) -> Any:
        items = self.iterate(args[0], node) if args else []
        return Sequence([Sequence([Plain(), item]) for item in items])

    def builtin_list(self, args: list[Any], node: ast.Call) -> Any:
        return Sequence(self.iterate(args[0], node)) if args else Sequence([])

    builtin_tuple = builtin_list
    builtin_sorted = builtin_list
    builtin_iter = builtin_list
    builtin_set = builtin_list

    def builtin_reversed(self, args: list[Any], node: ast.Call) -> Any:
        return Sequence(self.iterate(args[0], node)[::-1]) if args else Sequence([])

    def builtin_next(self, args: list[Any], node: ast.Call) -> Any:
        items = self.iterate(args[0], node) if args else []
        return items[0] if items else self.machine.unknown()

    def builtin_dict(self, args: list[Any], node: ast.Call) -> Any:
        return args[0] if args and isinstance(args[0], Mapping) else Mapping()

    def builtin_sum(self, args: list[Any], node: ast.Call) -> Any:
        items = self.iterate(args[0], node) if args else []
        total: Any = items[0] if items else Plain()
        for item in items[1:]:
            total = self.binary(ast.Add(), total, item, node)  # type: ignore[attr-defined]
        return total

    def builtin_max(self, args: list[Any], node: ast.Call) -> Any:
        if all(isinstance(a, Plain) for a in args):
            return Plain()
        return self.machine.unknown([t for a in args for t in tensors_in(a)], node)

    builtin_min = builtin_max

    def builtin_getattr(self, args: list[Any], node: ast.Call) -> Any:
        if len(args) > 1 and isinstance(args[1], Plain) and isinstance(args[1].value, str):
            return self.attribute(args[0], args[1].value, node)  # type: ignore[attr-defined]
        return self.machine.unknown()

    def builtin_setattr(self, args: list[Any], node: ast.Call) -> Any:
        if len(args) > 2 and isinstance(args[0], Instance) and isinstance(args[1], Plain) and args[1].known:
            args[0].attributes[str(args[1].value)] = args[2]
        return Plain()

    def builtin_map(self, args: list[Any], node: ast.Call) -> Any:
        if len(args) != 2:
            return self.machine.unknown()
        return Sequence([self.call_value(args[0], [item], {}, node) for item in self.iterate(args[1], node)])


def _calls(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == name for n in ast.walk(node))
