"""What the source says of the attributes of a class: comments at its fields, or its docstring."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from textwrap import dedent


def attributes_of(shape: type) -> dict[str, str]:
    """Return what each attribute means, as a sentence, in the order of the source."""
    source = dedent(inspect.getsource(shape))
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.ClassDef):
        message = f"{shape} is no class"
        raise TypeError(message)
    found = _in_docstring(ast.get_docstring(tree) or "")
    comments = _comments(source)
    for name, node in _places(tree):
        if not name.startswith("_") and (meaning := _beside(node, comments)):
            found.setdefault(name, meaning)
    return {name: _sentence(meaning) for name, meaning in found.items()}


def _sentence(text: str) -> str:
    ended = text if text.endswith((".", "?", "!")) else f"{text}."
    return ended[:1].upper() + ended[1:]


def _in_docstring(doc: str) -> dict[str, str]:
    found: dict[str, str] = {}
    section = doc.partition("Attributes:\n")[2]
    for line in dedent(section).splitlines():
        if line.startswith(" ") and found:
            found[list(found)[-1]] += f" {line.strip()}"
        elif ": " in line:
            name, _, meaning = line.partition(": ")
            found[name] = meaning
        else:
            break
    return found


def _comments(source: str) -> dict[int, tuple[str, bool]]:
    """Return the comment of each line, and whether it has the line for itself."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: (token.string.lstrip("#: "), not token.line[: token.start[1]].strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _places(tree: ast.ClassDef) -> list[tuple[str, ast.stmt]]:
    """Return the statements that declare an attribute: fields, and assignments in `__init__`."""
    found: list[tuple[str, ast.stmt]] = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append((node.target.id, node))
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for inner in node.body:
                targets = inner.targets if isinstance(inner, ast.Assign) else []
                if isinstance(inner, ast.AnnAssign):
                    targets = [inner.target]
                found += [(each.attr, inner) for each in targets if isinstance(each, ast.Attribute)]
    return found


def _beside(node: ast.stmt, comments: dict[int, tuple[str, bool]]) -> str:
    """Return the comment at the end of a statement, or the lines of comment above it."""
    text, is_alone = comments.get(node.end_lineno or node.lineno, ("", True))
    if not is_alone:
        return text
    lines: list[str] = []
    number = node.lineno - 1
    while number in comments and comments[number][1]:
        lines.insert(0, comments[number][0])
        number -= 1
    return " ".join(lines)
