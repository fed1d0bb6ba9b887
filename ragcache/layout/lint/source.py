"""Faults that can be seen in the code that builds prompts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ...errors import ConfigError
from ..rules import CacheRules
from .findings import Finding, unique
from .pieces import VARYING, Piece, Pieces, Reader, inner_bodies, slots_of

_PROMPT = re.compile(r"(^|_)(prompt|system|instructions?|template|preamble)($|_)", re.I)
_PROMPT_FUNCTION = re.compile(r"(prompt|format_docs|format_documents|context|messages)", re.I)
_CONTENT_KEYWORDS = frozenset(
    {"content", "system", "prompt", "system_prompt", "instructions", "input", "template", "text"}
)
_MESSAGES = {
    "SystemMessage": "system",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "ChatMessage": "",
    "SystemMessagePromptTemplate": "system",
}
_DOCUMENT_SLOT = re.compile(
    r"^(context|contexts|documents?|docs|sources|passages|context_str)$", re.I
)
_QUESTION_SLOT = re.compile(r"^(question|query|input|user_input|query_str)$", re.I)
_MARKS = ("cache_control", "prompt_cache_breakpoint", "cachePoint")
#: Text that is worth reusing, in characters.
_WORTH = 20


def lint_source(
    text: str, *, path: str = "<source>", rules: Sequence[CacheRules] = ()
) -> tuple[Finding, ...]:
    """Return the faults of one Python file.

    Args:
        text: Its source.
        path: Its name, for the report.
        rules: Known providers, for the rules on implicit marks and cache keys.

    Raises:
        ConfigError: The file is not Python.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}: not Python: {error.msg}") from error
    return unique(_File(path, tree, rules).findings())


class _File:
    """One file: its functions, and the places where prompts are made."""

    def __init__(self, path: str, tree: ast.Module, rules: Sequence[CacheRules]) -> None:
        self._path = path
        self._tree = tree
        self._rules = rules
        self._functions = {
            node.name: node
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    def findings(self) -> Iterator[Finding]:
        """Yield every fault."""
        yield from self._body(self._tree.body, Reader({}, self._functions), "")
        for function in self._functions.values():
            reader = Reader({}, self._functions)
            yield from self._body(function.body, reader, function.name)
        for node in ast.walk(self._tree):
            yield from self._anywhere(node)

    def _body(self, body: Sequence[ast.stmt], reader: Reader, function: str) -> Iterator[Finding]:
        for statement in body:
            reader.run(statement)
            yield from self._statement(statement, reader, function)
            for inner in inner_bodies(statement):
                yield from self._body(inner, reader, function)

    def _statement(self, statement: ast.stmt, reader: Reader, function: str) -> Iterator[Finding]:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _PROMPT.search(name):
                role = "system" if "system" in name.lower() else ""
                yield from self._prompt(reader.read(value), role)
            case ast.AugAssign(target=ast.Name(id=name)) if _PROMPT.search(name):
                yield from self._prompt(reader.names.get(name, ()), "")
            case ast.Return(value=value) if _PROMPT_FUNCTION.search(function):
                role = "system" if "system" in function.lower() else ""
                yield from self._prompt(reader.read(value), role)
        for node in _own_expressions(statement):
            yield from self._expression(node, reader)

    def _expression(self, node: ast.AST, reader: Reader) -> Iterator[Finding]:
        match node:
            case ast.Dict():
                yield from self._message(node, reader)
            case ast.Tuple(elts=[ast.Constant(value="system" | "human" | "user" as role), text]):
                yield from self._prompt(reader.read(text), "system" if role == "system" else "user")
            case ast.Call():
                yield from self._call(node, reader)

    def _message(self, node: ast.Dict, reader: Reader) -> Iterator[Finding]:
        fields = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        role = fields.get("role")
        name = role.value if isinstance(role, ast.Constant) else ""
        content = fields.get("content") or fields.get("text")
        pieces = reader.read(content) if content is not None else ()
        yield from self._prompt(pieces, str(name))
        if any(mark in fields for mark in _MARKS):
            yield from self._at(
                "R7", [piece for piece in pieces if piece.kind in ("clock", "uuid", "random")]
            )

    def _call(self, node: ast.Call, reader: Reader) -> Iterator[Finding]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _plain_name(node.func)
        if name in _MESSAGES and node.args:
            yield from self._prompt(reader.read(node.args[0]), _MESSAGES[name])
        for keyword in node.keywords:
            if keyword.arg in _CONTENT_KEYWORDS:
                role = "system" if keyword.arg.startswith(("system", "instr")) else ""
                role = _MESSAGES.get(name, role)
                yield from self._prompt(reader.read(keyword.value), role)
            if keyword.arg == "tools":
                sets = [p for p in reader.read(keyword.value) if p.kind == "set"]
                yield from self._at("tool_order", sets)

    def _prompt(self, pieces: Pieces, role: str) -> Iterator[Finding]:
        """Yield what is wrong with the order of a prompt's pieces."""
        last_stable = max((at for at, piece in enumerate(pieces) if _is_stable(piece)), default=-1)
        first_document = next(
            (at for at, p in enumerate(pieces) if p.kind in ("ranked", "documents")), None
        )
        for at, piece in enumerate(pieces):
            needless = piece.kind in ("set", "json")  # nobody needs that order to vary, anywhere
            if piece.kind in VARYING and (needless or role == "system" or at < last_stable):
                yield self._finding(VARYING[piece.kind], piece)
        yield from self._at("R2", [p for p in pieces if p.kind == "score"])
        yield from self._at("R3", [p for p in pieces if p.kind == "position"])
        if first_document is not None:
            yield from self._at("R4", [p for p in pieces[:first_document] if p.kind == "question"])
            yield from self._at("R1", [p for p in pieces if p.kind == "ranked"][:1])

    def _at(self, rule: str, pieces: Sequence[Piece]) -> Iterator[Finding]:
        for piece in pieces:
            yield self._finding(rule, piece)

    def _finding(self, rule: str, piece: Piece) -> Finding:
        return self._node(rule, piece.node)

    def _node(self, rule: str, node: ast.AST, detail: str = "") -> Finding:
        return Finding(
            rule=rule,
            path=self._path,
            line=getattr(node, "lineno", 1),
            column=getattr(node, "col_offset", 0) + 1,
            detail=detail,
        )

    # --- faults that need no order ---------------------------------------------------------------

    def _anywhere(self, node: ast.AST) -> Iterator[Finding]:
        match node:
            case ast.Call(func=func) if _called(func) == "LongContextReorder":
                yield self._node("R5", node)
            case ast.Call():
                yield from self._provider(node)
            case ast.Constant(value=str() as text) if "{" in text:
                yield from self._template(node, text)

    def _template(self, node: ast.Constant, text: str) -> Iterator[Finding]:
        slots = [slot or "" for _, slot in slots_of(text)]
        documents = [at for at, slot in enumerate(slots) if _DOCUMENT_SLOT.match(slot)]
        questions = [at for at, slot in enumerate(slots) if _QUESTION_SLOT.match(slot)]
        if documents and questions and questions[0] < documents[0]:
            yield self._node("R4", node)

    def _provider(self, node: ast.Call) -> Iterator[Finding]:
        given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        model = given.get("model")
        if not isinstance(model, ast.Constant) or not isinstance(model.value, str):
            return
        known = next((one for one in self._rules if one.fits(model.value)), None)
        if known is None or known.match == "engine":
            return
        nested = " ".join(ast.dump(value) for value in given.values())
        if known.implicit and "prompt_cache_options" not in {*given} and "explicit" not in nested:
            yield self._node("R8", node, known.name)
        if known.key_field and known.key_field not in given and known.key_field not in nested:
            yield self._node("R9", node, f"{known.key_field} is missing")


def _is_stable(piece: Piece) -> bool:
    if piece.kind in ("ranked", "documents"):
        return True
    return piece.kind == "text" and piece.length >= _WORTH


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, those of statements inside it aside."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from ast.walk(child)


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else _plain_name(node)


def _plain_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
