"""Makes every access of a compiled kernel visible, in LLVM's text form."""

from __future__ import annotations

import re
from pathlib import Path

_ACCESS = re.compile(
    r"call void @__sanitizer_cov_(load|store)(\d+)\(ptr( addrspace\(\d\))? (.+?)\)"
    r"((?: #\d+)?, !dbg !(\d+).*)?$"
)
_MEMORY = re.compile(r"= load .*ptr addrspace\(|^ *store .*ptr addrspace\(")
# Casts between address spaces, atomics, copies that no hook sees; and Metal has no double.
_REFUSED = re.compile(
    r"^  .*(addrspacecast ptr addrspace|atomicrmw|cmpxchg|@llvm\.mem.*addrspace\(|\bdouble\b)"
)
_TOGETHER = re.compile(r"(@host_(?:barrier|gather)\(.*i32 noundef )0(\).*!dbg !(\d+))")
_BLOCK = "call void @__sanitizer_cov_trace_pc()"
_DEBUG = re.compile(r"!dbg !(\d+)")
_DECLARATIONS = """
declare void @host_load(ptr, i32, i32, i32)
declare void @host_store(ptr, i32, i32, i32)
declare void @host_block(i32)
"""

Line = tuple[str, int]

# Files that are not the kernel's text.
_OURS = {"aligned.h", "dialect.h", "host.h", "generated", "kernel.cpp"}


class CompileError(Exception):
    """The kernel text did not compile; the message is the compiler's."""


def instrument(ir: str) -> tuple[str, dict[str, object]]:
    """Replace clang's hooks by the runtime's; refuse any access that has none."""
    where = _Places(ir)
    blocks: list[set[int]] = []
    lines: list[str] = []
    hooked = in_block = False
    every = ir.splitlines()
    for line, following in zip(every, [*every[1:], ""], strict=True):
        access = _ACCESS.search(line)
        if _REFUSED.search(line) or (_MEMORY.search(line) and not hooked):
            raise CompileError(f"not modelled on the host: {line.strip()}")
        hooked = access is not None
        if _BLOCK in line:
            blocks.append(set())
        in_block = line.startswith("  ") and (in_block or _BLOCK in line)
        if in_block and (debug := _DEBUG.search(line)):
            blocks[-1].add(int(debug[1]))
        if in_block and "@__ubsan_handle" in line:
            # Reports what clang's checks found: not part of the text.
            blocks[-1].clear()
            in_block = False
        if access is None:
            plain = line.replace(_BLOCK, f"call void @host_block(i32 {len(blocks) - 1})")
            lines.append(
                _TOGETHER.sub(lambda found: f"{found[1]}{where.use(found[3])}{found[2]}", plain)
            )
        elif access[3]:
            lines.append(_checked(access, following, where))
    covered = [sorted({place for site in block for place in where.chain(site)}) for block in blocks]
    return "\n".join(lines) + _DECLARATIONS, {"places": where.used, "blocks": covered}


def _checked(access: re.Match[str], following: str, where: _Places) -> str:
    kind, size, space, pointer, tail, site = access.groups()
    align = re.search(r", align (\d+)", following)
    sizes = f"i32 {size}, i32 {align[1] if align else 1}"
    arguments = f"ptr{space} {pointer}, {sizes}, i32 {where.use(site or '0')}"
    return f"  call void @host_{kind}({arguments}){tail or ''}"


class _Places:
    """Debug locations of a module."""

    def __init__(self, ir: str) -> None:
        self._nodes = dict(re.findall(r"^!(\d+) = (?:distinct )?!(DI\w+\(.*)$", ir, re.MULTILINE))
        self.used: dict[str, list[Line]] = {}

    def use(self, site: str) -> str:
        """Keep what `site` stands for."""
        self.used[site] = self.chain(int(site))
        return site

    def chain(self, site: int) -> list[Line]:
        """The lines of the kernel's text at `site`, innermost first."""
        found: list[Line] = []
        node = str(site)
        while node in self._nodes:
            text = self._nodes[node]
            line, scope = int(_field(text, "line", "0")), _field(text, "scope", "!")[1:]
            file = self._nodes.get(_field(self._nodes[scope], "file", "!")[1:], "")
            name = Path(_field(file, "filename", '""').strip('"')).name
            if line and name not in _OURS:
                found.append((name, line))
            node = _field(text, "inlinedAt", "!")[1:]
        return found


def _field(node: str, name: str, missing: str) -> str:
    found = re.search(rf'\b{name}: ("[^"]*"|[^,)]+)', node)
    return found[1] if found else missing
