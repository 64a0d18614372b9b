"""What is changed in a kernel text: rules over its form, so that they follow it when it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_CALL = rf"[A-Za-z_][\w.:]*(?:<\w+>)?(?:\({_NESTED}\))?(?:\[[^\]]*\])?"
_ATOM = rf"(?<![\w.:>])(?:\({_NESTED}\)|\d[\w.]*|{_CALL})"
_TERM = rf"{_ATOM}(?: [*/] {_ATOM})*"
_SUM = rf"-?{_TERM}(?: [-+] {_TERM})*"
_TEST = rf"!?{_SUM}(?: (?:<|>|==) {_SUM})?"
_BEFORE = r"(?:(?<=if \()|(?<=\w = )|(?<=&& )|(?<=\|\| ))"
_ARGUMENT = r"((?:[^(),]|\((?:[^()]|\([^()]*\))*\))+)"
# An integer that is read: neither declared, nor assigned, nor the argument of a template.
_INTEGER = (
    r"(?<![\w.<])(?<!int )(?<!uint )(?<!size_t )"
    r"(size|threads|span\.\w+|me\.\w+|lead|edge|start|row|at|[ijkN]|\d+)"
    r"(?![\w.(]| [-+*]?= |\+\+)"
)
_NUMBER = r"(?<![\w.])(?!0\.0f)(\d+\.\d+(?:e-?\d+)?f)\b"
_STATEMENT = (
    r"^ *(?!threadgroup_barrier)[a-z][\w.]*(?:<\w+>)?(?:(?:\[[^;=]*\])? [-+*]?= |\()[^;{}]*"
)

_NO_CODE = re.compile(
    r"//.*|^template .*|\bFUNCTION [^{]*|\bstruct \w+ \{(?:\s+\w+ \w+;(?: *//.*)?)*", re.MULTILINE
)


@dataclass(frozen=True)
class Rule:
    """Every match of `pattern` in a text gives one mutant for each replacement."""

    name: str
    pattern: str
    replacements: tuple[str, ...]


RULES = (
    Rule("barrier removed", r"threadgroup_barrier\([^;]*\);", (";",)),
    Rule("barrier without its flag", r"mem_flags::mem_threadgroup", ("mem_flags::mem_none",)),
    Rule("bound shifted", r" < ", (" <= ",)),
    Rule("bound shifted", r" > ", (" >= ",)),
    Rule("comparison turned", r" < ", (" >= ",)),
    Rule("comparison turned", r" > ", (" <= ",)),
    Rule("comparison turned", r" == ", (" != ",)),
    Rule("integer one off", _INTEGER, (r"(\1 + 1)", r"(\1 - 1)")),
    Rule("step doubled", r"\b([a-z])\+\+", (r"\1 += 2",)),
    Rule("p for q", r"(\b|(?<=\w_))q(?=\b|_\d)", (r"p",)),
    Rule("q for p", r"(\b|(?<=\w_))p(?=\b|_\d)", (r"q",)),
    Rule("factor dropped", rf" [*/] {_ATOM}", ("",)),
    Rule("factor dropped", rf"{_ATOM} \* ", ("",)),
    Rule("factor dropped", rf"{_ATOM} /(?= [a-z])", ("1.0f /",)),
    Rule("factor dropped", r"\*= ", ("= 1.0f * ",)),
    Rule("rescale dropped", rf"\b(?:scaled|product)\({_ARGUMENT}, {_ARGUMENT}\)", (r"\1",)),
    Rule("rescale dropped", rf"\bdecay\({_ARGUMENT}, {_ARGUMENT}\)", ("1.0f",)),
    Rule(
        "part of fma dropped",
        rf"\bfma\({_ARGUMENT}, {_ARGUMENT}, {_ARGUMENT}\)",
        (r"fma(1.0f, \2, \3)", r"fma(\1, 1.0f, \3)", r"(\1) * (\2)"),
    ),
    Rule("number changed", _NUMBER, (r"(2.0f * \1)", r"(0.5f * \1)")),
    Rule("number changed", r"\b0\.0f", ("1.0f", "-1.0f")),
    Rule("number changed", r"\b(?:INFINITY|NAN)\b", ("0.0f",)),
    Rule("addend dropped", rf" [-+] {_TERM}", ("",)),
    Rule("addend dropped", rf"{_TERM} \+ ", ("",)),
    Rule("addend dropped", rf"{_TERM} - ", ("-",)),
    Rule("sign turned", r" \+ ", (" - ",)),
    Rule("sign turned", r" - ", (" + ",)),
    Rule("sign turned", r"(?<![\w)] )-(?=[a-zA-Z(\d])(?<!e-)", ("",)),
    Rule("select decided", r" \? ", (" && false ? ", " || true ? ")),
    Rule("branch decided", r"\bif \(.*\) \{", ("if (true) {", "if (false) {")),
    Rule("condition dropped", rf"{_BEFORE}{_TEST} (?:&&|\|\|) ", ("",)),
    Rule("condition dropped", rf" (?:&&|\|\|) {_TEST}", ("",)),
    Rule("condition turned", r"(?<=\()!", ("",)),
    Rule("condition turned", r"\bfalse\b", ("true",)),
    Rule("clamp dropped", rf"\b(?:max|min)\({_ARGUMENT}, {_ARGUMENT}\)", (r"(\1)", r"(\2)")),
    Rule("clamp turned", r"\bmax\(", ("min(",)),
    Rule("clamp turned", r"\bmin\(", ("max(",)),
    Rule("size of a number dropped", r"\bfabs\(", ("(",)),
    Rule("precise made fast", r"\bprecise_", ("fast_",)),
    Rule("statement dropped", _STATEMENT, ("",)),
)


@dataclass(frozen=True)
class Mutant:
    """One kernel text with one change.

    Attributes:
        above: the line before those that differ.
        before: the lines that differ, as they are.
        after: the same ones as they are changed.
    """

    rule: str
    file: str
    line: int
    above: str
    before: str
    after: str
    text: str

    def names(self) -> set[tuple[str, ...]]:
        """Return what it is called in the list of equivalent ones."""
        told_by = ((), (self.above,), (self.before,))
        return {(self.file, *line, self.after) for line in told_by}

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}\n    - {self.before}\n    + {self.after}"


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """Yield what the rules make of `text`, the same text only once."""
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    seen = {text}
    for rule in RULES:
        for found in _matches(rule.pattern, code):
            for replacement in rule.replacements:
                put = found.expand(replacement)
                # Lines keep their numbers.
                put += "\n" * (found[0].count("\n") - put.count("\n"))
                changed = text[: found.start()] + put + text[found.end() :]
                if changed not in seen:
                    seen.add(changed)
                    yield _mutant(rule.name, file, text, changed)


def _matches(pattern: str, code: str) -> Iterator[re.Match[str]]:
    # Overlapping: `a + b + c` has two addends that a scan from left to right sees as one.
    compiled, start = re.compile(pattern, re.MULTILINE), 0
    while found := compiled.search(code, start):
        yield found
        start = found.start() + 1


def _mutant(rule: str, file: str, text: str, changed: str) -> Mutant:
    old, new = text.split("\n"), changed.split("\n")
    differ = [i for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
    before, after = (" ".join(x[i].strip() for i in differ) for x in (old, new))
    first = differ[0]
    above = old[first - 1].strip() if first else ""
    return Mutant(rule, file, first + 1, above, before, after, changed)
