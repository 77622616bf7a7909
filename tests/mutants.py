"""Mutation tests: change the code in one place, and see whether the tests notice.

    python tests/mutants.py reach reach.json
    python tests/mutants.py run reach.json --number 150 --seed 1 --out mutants.json

`reach` runs the selection of `make test` once under coverage and writes, for every line of the two
packages, the tests that execute it. `run` draws mutants by seed, Python and C++ by their numbers of
lines, and runs for each the tests that reach it, those nearest to it first, until one fails or the
tests have had `--budget` seconds. A mutant of native code is reached by `tests/bpe_core`, and by
what the Python lines of `bpe_core` that call native code are reached by.

The work tree is a copy below the temporary directory; the checkout does not change.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("bpe_core", "pipelines")
# Files that are documentation, types or generated: no test has to notice a change of them.
LEFT_OUT = ("_native.pyi", "generate_", "_tables.cpp", "bert_classes.hpp", "reference.py")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: relative to the checkout.
        line: number, from 1.
        old, new: the text of the changed lines.
        end: the last changed line.
    """

    path: str
    line: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old.strip()[:70]} → {self.new.strip()[:70]}"


# --- mutants of Python ----------------------------------------------------------------------------

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def python_mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a Python file, one an expression or statement."""
    source = path.read_text()
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    left_out = {
        id(part)
        for node in ast.walk(tree)
        for root in _not_behaviour(node)
        for part in ast.walk(root)
    }
    for node in ast.walk(tree):
        if id(node) in left_out or not isinstance(node, ast.expr | ast.stmt):
            continue
        changed = _changed_node(node)
        if changed is None:
            continue
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        text = f"({ast.unparse(changed)})" if isinstance(node, ast.expr) else ast.unparse(changed)
        yield Mutant(
            path=str(path.relative_to(ROOT)),
            line=first + 1,
            end=last + 1,
            old="".join(lines[first : last + 1]),
            new=before + text + after,
        )


def _not_behaviour(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the annotations and decorators of a node, and the type that it is an alias of."""
    for field in ("annotation", "returns"):
        if (note := getattr(node, field, None)) is not None:
            yield note
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":
        yield node


def _changed_node(node: ast.expr | ast.stmt) -> ast.AST | None:
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            return ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in OPERATORS and not _is_text(node):
            return ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.BoolOp(op=ast.And()):
            return ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            return ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise(exc=ast.Call()):
            return ast.Pass()
        case ast.Continue():
            return ast.Break()
        case _:
            return None


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )


# --- mutants of C++ -------------------------------------------------------------------------------

CPP_CHANGES = (
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r"\+\+(?=\w)", "--"),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"(?<=[ (\[])([1-9][0-9]?)(?=[;)\], ])", r"(\1 + 1)"),
    (r" & ", " | "),
    (r" << (?=\d)", " >> "),
)


def cpp_mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a C++ file, one an operator or constant."""
    for number, line in enumerate(path.read_text().splitlines(keepends=True), 1):
        code = line.split("//")[0]
        if re.match(r"\s*(#|static_assert|template|using|\*)", code) or "operator" in code:
            continue
        for pattern, replacement in CPP_CHANGES:
            for found in re.finditer(pattern, code):
                changed = code[: found.start()] + found.expand(replacement) + line[found.end() :]
                yield Mutant(
                    path=str(path.relative_to(ROOT)), line=number, end=number, old=line, new=changed
                )


def draw(number: int, seed: int) -> list[Mutant]:
    """Return mutants drawn by seed: a file by its number of lines, then one of its mutants."""
    files = [
        path
        for package in PACKAGES
        for kind in ("*.py", "*.cpp", "*.hpp")
        for path in sorted((ROOT / package).rglob(kind))
        if not any(part in path.name for part in LEFT_OUT)
    ]
    weights = [len(path.read_bytes().splitlines()) for path in files]
    chance = random.Random(seed)
    drawn: dict[tuple[str, int], Mutant] = {}
    while len(drawn) < number:
        [path] = chance.choices(files, weights)
        make = python_mutants if path.suffix == ".py" else cpp_mutants
        mutants = [mutant for mutant in make(path) if mutant.old != mutant.new]
        if mutants:
            mutant = chance.choice(mutants)
            drawn.setdefault((mutant.path, mutant.line), mutant)
    return list(drawn.values())


# --- which tests reach a line ---------------------------------------------------------------------


def write_reach(out: Path, arguments: Sequence[str]) -> None:
    """Run the tests under coverage and write the tests of every line."""
    import coverage

    with tempfile.TemporaryDirectory() as name:
        rc = Path(name) / "rc"
        data = Path(name) / "data"
        rc.write_text(
            f"[run]\nsource = {ROOT}/bpe_core,{ROOT}/pipelines\nparallel = True\n"
            f"data_file = {data}\ndynamic_context = test_function\n"
        )
        subprocess.run(
            [
                *(sys.executable, "-m", "coverage", "run", f"--rcfile={rc}"),
                *("-m", "pytest", "-q", *arguments),
            ],
            cwd=ROOT,
            check=False,
        )
        whole = coverage.Coverage(data_file=str(data), config_file=str(rc))
        whole.combine([name])
        found = whole.get_data()
        reach = {
            str(Path(path).relative_to(ROOT)): {
                str(line): sorted(filter(None, tests))
                for line, tests in found.contexts_by_lineno(path).items()
            }
            for path in found.measured_files()
        }
    out.write_text(json.dumps(reach))


def tests_of(mutant: Mutant, reach: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return names of tests that reach a mutant, the nearest first."""
    if mutant.path.endswith(".py"):
        of_file = reach.get(mutant.path, {})
        found = {t for n in range(mutant.line, mutant.end + 1) for t in of_file.get(str(n), ())}
    else:
        found = {
            test
            for path, of_file in reach.items()
            if path.startswith("bpe_core/")
            for tests in of_file.values()
            for test in tests
            if ".bpe_core." in test
        }
    words = set(re.findall(r"[a-z]+", Path(mutant.path).stem))

    def distance(test: str) -> tuple[int, str]:
        return -len(words & set(re.findall(r"[a-z]+", test))), test

    return sorted(found, key=distance)


# --- running ------------------------------------------------------------------------------------


def judge(mutant: Mutant, tests: Sequence[str], copy: Path, budget: float) -> tuple[str, str]:
    """Return what became of a mutant, and the test that noticed it."""
    path = copy / mutant.path
    original = path.read_text()
    lines = original.splitlines(keepends=True)
    lines[mutant.line - 1 : mutant.end] = [mutant.new]
    path.write_text("".join(lines))
    try:
        if path.suffix != ".py":
            built = _run([sys.executable, "setup.py", "build_ext", "--inplace"], copy, 600)
            if built is None or built.returncode:
                return "does not compile", ""
        files: dict[str, list[str]] = {}
        for test in tests:
            module, _, name = test.rpartition(".")
            files.setdefault(module, []).append(name)
        end = time.monotonic() + budget
        for module, names in files.items():
            left = end - time.monotonic()
            if left < 1:
                return "survived its budget", ""
            file = module.replace(".", "/") + ".py"
            selected = [f"{file}::{name}" for name in dict.fromkeys(names)]
            done = _run([sys.executable, "-m", "pytest", "-q", "-x", *selected], copy, left)
            if done is None:
                return "killed", f"{file} (too slow)" if left < budget else file
            if done.returncode not in (0, 5):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return "killed", failed.group(1) if failed else file
        return "survived", ""
    finally:
        path.write_text(original)


def _run(
    command: list[str], directory: Path, seconds: float
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    reaching = commands.add_parser("reach")
    reaching.add_argument("out", type=Path)
    reaching.add_argument("arguments", nargs="*")
    running = commands.add_parser("run")
    running.add_argument("reach", type=Path)
    running.add_argument("--number", type=int, default=150)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--budget", type=float, default=120)
    running.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "reach":
        write_reach(given.out, given.arguments)
        return
    reach = json.loads(given.reach.read_text())
    results = []
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "copy"
        ignored = shutil.ignore_patterns(".git", ".venv", "out", "dist", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
        for mutant in draw(given.number, given.seed):
            tests = tests_of(mutant, reach)
            result, by = judge(mutant, tests, copy, given.budget) if tests else ("not reached", "")
            results.append({**asdict(mutant), "result": result, "by": by, "tests": len(tests)})
            print(f"{len(results):4} {result:20} {mutant} {by}", flush=True)
            given.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
