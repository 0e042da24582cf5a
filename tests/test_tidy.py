"""Style as a test: the rules that the linters do not know.

A rule is a function `rule(path, text) -> list[str]`. It gets one file of the tree, with its path
from the root, and returns a sentence for each violation; it has nothing to say on a file that does
not concern it. To add a rule, write the function and put it into `RULES` with a sample that breaks
it: every rule runs on the whole tree, and every rule must find its sample.

The patterns and samples are spelt so that this file obeys its own rules.
"""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES_MAX = {"src": 700, "bench": 700, "tests": 800}
FUNCTION_LINES_MAX = {"src": 60, "bench": 60}

#: What may only fall. A change that adds a capability raises them on purpose, by what it adds.
SOURCE_LINES_MAX = 112_500
SOURCE_MODULES_MAX = 535

#: A folder with more modules than this is several packages.
FOLDER_MODULES_MAX = 20

#: Words with a plainer one: who, a client, no worker, must, again, available, recently, outcome.
ODD_WORDS = re.compile(
    r"\b(?:whoever|somebody|nobody|shall|anew|of late|to be had|what becomes of)\b", re.IGNORECASE
)

VAGUE_NAMES = frozenset({"util", "utils", "common", "helper", "helpers", "misc"})
LEFTOVER = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/(?:work|root|home|Users)/")
REGISTRY = re.compile(
    r"https?://[^\s/]*(?:py[p]i|pythonhoste[d]|npmj[s]|anacond[a])|--(?:extra-)?index-ur[l]",
    re.IGNORECASE,
)
MAKING_OF = re.compile(r"\b(?:session|issue|ticket|pull request)\s+#?\d+\b", re.IGNORECASE)
CODE_IN_MARKDOWN = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)[^)]*\)|^\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
MODULE = re.compile(r"`jackalope\.([a-z_0-9]+(?:\.\w+)+)`|`((?:[a-z_]+/)+[a-z_0-9]+\.py)`")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)

Rule = Callable[[PurePosixPath, str], list[str]]


# Python code.


def file_is_short(path: PurePosixPath, text: str) -> list[str]:
    lines, lines_max = len(text.splitlines()), FILE_LINES_MAX.get(path.parts[0])
    if not is_code(path) or lines_max is None or lines <= lines_max:
        return []
    return [f"{path}: {lines} lines, at most {lines_max}"]


def function_is_short(path: PurePosixPath, text: str) -> list[str]:
    lines_max = FUNCTION_LINES_MAX.get(path.parts[0])
    if not is_code(path) or lines_max is None:
        return []
    return [
        f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {lines_max}"
        for node in ast.walk(parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := lines_without_docstring(node)) > lines_max
    ]


def module_has_docstring(path: PurePosixPath, text: str) -> list[str]:
    if not is_source(path) or ast.get_docstring(parse(text)):
        return []
    return [f"{path}: no docstring; say what the module owns and what it must not know"]


def module_name_says_something(path: PurePosixPath, _text: str) -> list[str]:
    names = {name.strip("_") for name in path.with_suffix("").parts}
    if not is_code(path) or names.isdisjoint(VAGUE_NAMES):
        return []
    return [f"{path}: the name says nothing; name it after what it owns"]


def nothing_is_left_over(path: PurePosixPath, text: str) -> list[str]:
    if not is_code(path):
        return []
    return [f"{place}: {found}: do it or drop it" for place, found in hits(LEFTOVER, path, text)]


def only_the_cli_prints(path: PurePosixPath, text: str) -> list[str]:
    if not is_source(path) or path.is_relative_to("src/jackalope/cli"):
        return []
    return [
        f"{path}:{node.lineno}: only the cli prints"
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def source_has_no_assert(path: PurePosixPath, text: str) -> list[str]:
    if not is_source(path):
        return []
    return [
        f"{path}:{node.lineno}: python -O removes an assert; use must()"
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Assert)
    ]


# Every text file.


def no_machine_path(path: PurePosixPath, text: str) -> list[str]:
    found_at = hits(MACHINE_PATH, path, text)
    return [f"{place}: {found} exists on one machine only" for place, found in found_at]


def no_package_registry(path: PurePosixPath, text: str) -> list[str]:
    found_at = hits(REGISTRY, path, text)
    return [f"{place}: {found} names a package registry" for place, found in found_at]


def no_word_on_the_making(path: PurePosixPath, text: str) -> list[str]:
    if path.parts[0] not in {"src", "docs"} and path.suffix != ".md":
        return []
    found_at = hits(MAKING_OF, path, text)
    return [f"{place}: {found!r}: give the reason, not its number" for place, found in found_at]


# Markdown.


def page_has_title(path: PurePosixPath, text: str) -> list[str]:
    if path.suffix != ".md" or text.startswith("# "):
        return []
    return [f"{path}: does not begin with a title, '# ...'"]


def link_leads_somewhere(path: PurePosixPath, text: str) -> list[str]:
    if path.suffix != ".md":
        return []
    prose = CODE_IN_MARKDOWN.sub("", text)
    targets = [inline or reference for inline, reference in LINK.findall(prose)]
    return [
        f"{path}: {target} does not exist"
        for target in targets
        if not ELSEWHERE.match(target) and not (ROOT / path.parent / target.split("#")[0]).exists()
    ]


# Python and Markdown.


def module_named_exists(path: PurePosixPath, text: str) -> list[str]:
    # Decisions and the changelog tell what was so then.
    is_history = path.parent.name == "decisions" or path.name == "CHANGELOG.md"
    if is_history or not (is_source(path) or path.suffix == ".md"):
        return []
    return [
        f"{path}: no module {dotted or file}"
        for dotted, file in MODULE.findall(text)
        if not (is_defined(dotted) if dotted else is_file_of_ours(file))
    ]


def words_are_plain(path: PurePosixPath, text: str) -> list[str]:
    if not is_source(path) and path.parts[0] != "docs":
        return []
    return [
        f"{place}: {found!r} has a plainer word" for place, found in hits(ODD_WORDS, path, text)
    ]


# What the rules are made of.


def is_defined(dotted: str) -> bool:
    """Return whether a name below the package is a module, or something that a module has."""
    place = ROOT / "src/jackalope"
    for part in dotted.split("."):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").is_file():
            place /= f"{part}.py"
        else:
            module = place / "__init__.py" if place.is_dir() else place
            return re.search(rf"\b{part}\b", module.read_text()) is not None
    return True


def is_file_of_ours(name: str) -> bool:
    """Return whether there is a file of this path, from the root or from the package."""
    return (ROOT / name).is_file() or (ROOT / "src/jackalope" / name).is_file()


def is_code(path: PurePosixPath) -> bool:
    is_generated = path.stem.endswith(("_pb2", "_pb2_grpc"))
    in_tree = path.parts[0] in {"src", "tests", "bench"}
    return path.suffix == ".py" and in_tree and not is_generated


def is_source(path: PurePosixPath) -> bool:
    return is_code(path) and path.parts[0] == "src"


@cache
def parse(text: str) -> ast.Module:
    return ast.parse(text)


def lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = span(function)
    return lines if ast.get_docstring(function) is None else lines - span(function.body[0])


def span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def hits(pattern: re.Pattern[str], path: PurePosixPath, text: str) -> Iterator[tuple[str, str]]:
    """Yield the place, as `path:line`, and the text of each match."""
    for match in pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"{path}:{line}", match[0]


# The tests.


def function(lines: int, docstring_lines: int = 0) -> str:
    docstring = ['    """' + "\n" * (docstring_lines - 1) + '    """'] if docstring_lines else []
    return "\n".join(["def long() -> None:", *docstring, *["    pass"] * (lines - 1)])


RULES: dict[Rule, tuple[str, str]] = {
    file_is_short: ("src/jackalope/core/task.py", "pass\n" * 701),
    function_is_short: ("bench/journal.py", function(lines=61)),
    module_has_docstring: ("src/jackalope/core/task.py", "task = None\n"),
    module_name_says_something: ("tests/storage/_utils.py", ""),
    nothing_is_left_over: ("tests/test_task.py", "pass  # TO" + "DO: finish\n"),
    only_the_cli_prints: ("src/jackalope/broker/engine.py", "if True:\n    print('started')\n"),
    source_has_no_assert: ("src/jackalope/core/task.py", "assert True\n"),
    no_machine_path: ("Makefile", "test:\n\tcd /" + "home/me/jackalope\n"),
    no_package_registry: ("constraints.txt", "--index-" + "url local\n"),
    no_word_on_the_making: ("docs/index.md", "# Title\n\nAs in issue #3.\n"),
    page_has_title: ("docs/index.md", "Title\n=====\n"),
    module_named_exists: ("docs/index.md", "# Title\n\nSee `jackalope.core.gone` and `task`.\n"),
    words_are_plain: ("docs/index.md", "# Title\n\nAsk some" + "body else.\n"),
    link_leads_somewhere: ("docs/index.md", "# Title\n\nSee [that](missing.md#part).\n"),
}


@cache
def tree() -> dict[PurePosixPath, str]:
    """Read every text file that is tracked, or would be if it were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = {PurePosixPath(name): ROOT / name for name in listed.split("\0") if name}
    contents = {path: file.read_bytes() for path, file in files.items() if file.is_file()}
    return {path: content.decode() for path, content in contents.items() if b"\0" not in content}


def names(rule: Rule) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", RULES, ids=names)
def test_tree_obeys(rule: Rule) -> None:
    violations = [violation for path, text in tree().items() for violation in rule(path, text)]
    assert not violations, "\n" + "\n".join(violations)


@pytest.mark.parametrize("rule", RULES, ids=names)
def test_rule_finds_its_sample(rule: Rule) -> None:
    path, text = RULES[rule]
    assert len(rule(PurePosixPath(path), text)) == 1


def test_tree_is_all_of_it() -> None:
    assert PurePosixPath("tests/test_tidy.py") in tree()
    assert PurePosixPath("src/jackalope/__init__.py") in tree()
    assert not any(path.parts[0] == ".venv" for path in tree())


def test_the_source_grows_on_purpose_only() -> None:
    sources = {path: text for path, text in tree().items() if is_source(path)}
    assert sum(len(text.splitlines()) for text in sources.values()) <= SOURCE_LINES_MAX
    assert len(sources) <= SOURCE_MODULES_MAX


def test_folders_are_narrow() -> None:
    folders = Counter(path.parent for path in tree() if is_source(path))
    assert not [folder for folder, count in folders.items() if count > FOLDER_MODULES_MAX]


@pytest.mark.parametrize(("folder", "lines_max"), FILE_LINES_MAX.items())
def test_file_may_reach_its_limit(folder: str, lines_max: int) -> None:
    path = PurePosixPath(folder, "task.py")
    assert not file_is_short(path, "pass\n" * lines_max)
    assert file_is_short(path, "pass\n" * (lines_max + 1))


@pytest.mark.parametrize(("folder", "lines_max"), FUNCTION_LINES_MAX.items())
def test_function_may_reach_its_limit(folder: str, lines_max: int) -> None:
    path = PurePosixPath(folder, "task.py")
    assert not function_is_short(path, function(lines_max, docstring_lines=9))
    assert function_is_short(path, function(lines_max + 1, docstring_lines=9))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (function_is_short, "tests/test_task.py", function(lines=61)),
        (module_has_docstring, "bench/journal.py", "task = None\n"),
        (only_the_cli_prints, "src/jackalope/cli/worker.py", "print('started')\n"),
        (source_has_no_assert, "tests/test_task.py", "assert True\n"),
        (no_machine_path, "docs/index.md", "# Title\n\nshared/work/queue, ~/home/x, /homely/\n"),
        (no_package_registry, "docs/index.md", "# Title\n\nhttps://example.org/simple\n"),
        (no_word_on_the_making, "docs/index.md", "# Title\n\nA session resumes; one issue is.\n"),
        (link_leads_somewhere, "docs/index.md", "# T\n\n[a](../README.md#run-it) [b](#part)\n"),
        (link_leads_somewhere, "docs/index.md", "# T\n\n```\n[a](missing.md)\n```\n`[b](none)`\n"),
    ],
)
def test_rule_leaves_alone(rule: Rule, path: str, text: str) -> None:
    assert rule(PurePosixPath(path), text) == []
