"""What a prompt expression is made of, read from the syntax tree: text, documents, question,
and what varies from call to call, in the order in which they are printed."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Literal

Kind = Literal[
    "text", "clock", "uuid", "random", "set", "json", "documents", "ranked", "score",
    "position", "question", "tenant", "unknown",
]  # fmt: skip

#: What must not stand before text that could be reused, with the rule it breaks.
VARYING: dict[Kind, str] = {
    "clock": "clock",
    "uuid": "uuid",
    "random": "random",
    "set": "set_order",
    "json": "json_order",
    "tenant": "R13",
}

_DOCUMENTS = re.compile(
    r"(^|_)(docs?|documents?|chunks?|passages?|nodes?|hits?|contexts?|snippets?|sources?"
    r"|retrieved|results?|matches)($|_)",
    re.I,
)
_QUESTION = re.compile(
    r"(^|_)(question|query|user_?input|user_?query|user_?message|ask|prompt_input)($|_)", re.I
)
_SCORE = re.compile(
    r"(^|_)(score|scores|rank|ranking|distance|similarity|relevance|last_accessed\w*"
    r"|accessed_at|retrieved_at)($|_)",
    re.I,
)
_TENANT = re.compile(
    r"(^|_)(tenant|tenant_?id|customer_?id|user_?id|account_?id|org_?id|salt|cache_salt)($|_)", re.I
)
_CLOCK = frozenset(
    {"now", "utcnow", "today", "time", "time_ns", "strftime", "ctime", "localtime", "gmtime"}
)
_CLOCK_OWNERS = frozenset({"datetime", "date", "time", "pendulum", "arrow", "timezone", "dt"})
_RANDOM_OWNERS = frozenset({"random", "rng", "np.random", "numpy.random"})
_RETRIEVING = re.compile(
    r"^(get_relevant_documents|aget_relevant_documents|similarity_search\w*|max_marginal\w*"
    r"|retrieve|aretrieve|vector_search|hybrid_search)$"
)
_SORTING = frozenset({"sorted"})


@dataclass(frozen=True, slots=True)
class Piece:
    """Something printed, and where in the source it comes from."""

    kind: Kind
    node: ast.AST
    length: int = 0


Pieces = tuple[Piece, ...]


@dataclass(slots=True)
class Reader:
    """Reads expressions. `names` holds what is known of the variables in scope."""

    names: dict[str, Pieces] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    depth: int = 0

    def read(self, node: ast.expr | None) -> Pieces:
        """Return the pieces of an expression, in order."""
        if node is None:
            return ()
        if isinstance(node, ast.Constant):
            is_text = isinstance(node.value, str)
            return (Piece("text", node, len(node.value)),) if is_text else ()  # type: ignore[arg-type]  # a str, as just seen
        if isinstance(node, ast.Name):
            return self.names[node.id] if node.id in self.names else _by_name(node.id, node)
        if isinstance(node, (ast.Set, ast.SetComp)):
            return (Piece("set", node),)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self._member(node)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._comprehension(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        return self._all(_parts(node))

    def _all(self, nodes: Sequence[ast.expr]) -> Pieces:
        return tuple(piece for node in nodes for piece in self.read(node))

    def _member(self, node: ast.Attribute | ast.Subscript) -> Pieces:
        name = _member_name(node)
        if name is None:
            return self.read(node.value)
        named = _by_name(name, node)
        if named and named[0].kind in ("score", "tenant", "question"):
            return named
        owner = self.read(node.value)
        return tuple(Piece(piece.kind, node) for piece in owner) or named

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Pieces:
        inner = Reader(dict(self.names), self.functions, self.depth)
        for generator in node.generators:
            inner.bind_loop(generator.target, generator.iter)
        return inner.read(node.elt) or inner.read(node.generators[0].iter)

    def bind_loop(self, target: ast.expr, over: ast.expr) -> None:
        """Bind the variables of a loop."""
        if isinstance(over, ast.Call) and _name_of(over.func) == "enumerate" and over.args:
            if isinstance(target, ast.Tuple) and len(target.elts) == 2:
                numbers = Piece("position", target.elts[0])
                documents = any(p.kind in ("ranked", "documents") for p in self.read(over.args[0]))
                self._bind(target.elts[0], (numbers,) if documents else ())
                self.bind_loop(target.elts[1], over.args[0])
            return
        pieces = self.read(over)
        if isinstance(target, ast.Tuple):
            for element in target.elts:
                named = _by_name(element.id, element) if isinstance(element, ast.Name) else ()
                self._bind(element, named if named and named[0].kind == "score" else pieces)
            return
        self._bind(target, pieces)

    def _bind(self, target: ast.expr, pieces: Pieces) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = pieces

    def _call(self, node: ast.Call) -> Pieces:
        name, owner = _name_of(node.func), _owner_of(node.func)
        source = _source(name, owner)
        if source is not None:
            return (Piece(source, node),)
        if name in _SORTING and node.args:
            return tuple(
                Piece("documents" if p.kind == "ranked" else p.kind, p.node, p.length)
                for p in self.read(node.args[0])
                if p.kind not in ("set", "position")
            )
        if name == "dumps" and owner in ("json", "orjson", "ujson", ""):
            return self._dumped(node)
        if name == "format" and isinstance(node.func, ast.Attribute):
            return self._formatted(node)
        if name in self.functions and self.depth < 3:
            return self._inlined(self.functions[name], node)
        pieces = self._all([*node.args, *(k.value for k in node.keywords)])
        if isinstance(node.func, ast.Attribute):
            pieces = self.read(node.func.value) + pieces
        return pieces

    def _dumped(self, node: ast.Call) -> Pieces:
        inner = self._all(node.args)
        is_sorted = any(
            k.arg == "sort_keys" and isinstance(k.value, ast.Constant) and bool(k.value.value)
            for k in node.keywords
        )
        return inner if is_sorted else (Piece("json", node), *inner)

    def _formatted(self, node: ast.Call) -> Pieces:
        template = node.func.value if isinstance(node.func, ast.Attribute) else None
        if not isinstance(template, ast.Constant) or not isinstance(template.value, str):
            return self.read(template) + self._all([*node.args, *(k.value for k in node.keywords)])
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        pieces: list[Piece] = []
        for at, (literal, slot) in enumerate(slots_of(template.value)):
            pieces.append(Piece("text", template, len(literal)))
            if slot is None:
                continue
            index = int(slot) if slot.isdigit() else at
            value = named.get(slot) or (node.args[index] if index < len(node.args) else None)
            pieces.extend(self.read(value))
        return tuple(pieces)

    def _inlined(self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> Pieces:
        inner = Reader({}, self.functions, self.depth + 1)
        for parameter, value in zip(function.args.args, call.args, strict=False):
            inner.names[parameter.arg] = self.read(value)
        for keyword in call.keywords:
            if keyword.arg:
                inner.names[keyword.arg] = self.read(keyword.value)
        return inner.returned(function.body)

    def returned(self, body: Sequence[ast.stmt]) -> Pieces:
        """Run statements and return the pieces of what they return."""
        found: list[Piece] = []
        for statement in body:
            if isinstance(statement, ast.Return):
                found.extend(self.read(statement.value))
            self.run(statement)
            for inner in inner_bodies(statement):
                found.extend(self.returned(inner))
        return tuple(found)

    def run(self, statement: ast.stmt) -> None:
        """Note what a statement binds."""
        match statement:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, self.read(value))
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._bind(target, self.read(value))
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self.names[name] = self.names.get(name, ()) + self.read(value)
            case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over):
                self.bind_loop(target, over)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=verb))):
                if verb in ("append", "extend", "insert") and isinstance(statement.value, ast.Call):
                    more = self._all(statement.value.args)
                    self.names[name] = self.names.get(name, ()) + more


def _parts(node: ast.expr) -> list[ast.expr]:
    """Return the expressions that an expression prints one after the other."""
    match node:
        case ast.JoinedStr(values=parts) | ast.BoolOp(values=parts):
            return parts
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return parts
        case ast.FormattedValue(value=value) | ast.Await(value=value):
            return [value]
        case ast.Starred(value=value) | ast.NamedExpr(value=value):
            return [value]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Dict(values=parts):
            return [value for value in parts if value is not None]
    return []


def inner_bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the bodies inside a statement, those of functions and classes aside."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []
    bodies = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    bodies += [handler.body for handler in getattr(statement, "handlers", [])]
    bodies += [case.body for case in getattr(statement, "cases", [])]
    return [body for body in bodies if body]


def slots_of(template: str) -> list[tuple[str, str | None]]:
    """Return the literal pieces of a template, each with the slot behind it."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError:
        return [(template, None)]
    return [(literal, slot) for literal, slot, _, _ in parsed]


def _by_name(name: str, node: ast.AST) -> Pieces:
    if _SCORE.search(name):
        return (Piece("score", node),)
    if _TENANT.search(name):
        return (Piece("tenant", node),)
    if _QUESTION.search(name):
        return (Piece("question", node),)
    if _DOCUMENTS.search(name):
        return (Piece("ranked", node),)
    return ()


def _member_name(node: ast.Attribute | ast.Subscript) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _owner_of(node: ast.expr) -> str:
    """Return what a method is called on, dotted: "datetime.datetime" of `datetime.datetime.now`."""
    if not isinstance(node, ast.Attribute):
        return ""
    parts, value = [], node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if isinstance(value, ast.Name):
        parts.append(value.id)
    return ".".join(reversed(parts))


def _source(name: str, owner: str) -> Kind | None:
    """Return what a call brings in by itself."""
    last = owner.rpartition(".")[2]
    if name in _CLOCK and (last in _CLOCK_OWNERS or (not owner and name in ("time", "now"))):
        return "clock"
    if name.startswith("uuid") or name in ("token_hex", "token_urlsafe", "urandom", "nanoid"):
        return "uuid"
    if owner in _RANDOM_OWNERS or last == "random" or (not owner and name in ("id", "hash")):
        return "random"
    if name in ("set", "frozenset") and not owner:
        return "set"
    if _RETRIEVING.match(name) or (name in ("invoke", "ainvoke", "search") and "retriev" in owner):
        return "ranked"
    return None
