"""Makes golden values in 50-digit decimal arithmetic, with nothing but the standard library.

python tests/golden.py {kl,js} TEMPERATURE "student logits" "teacher logits"

prints the divergence and its gradient in the student logits.
"""

from __future__ import annotations

import sys
from decimal import Decimal, getcontext

Numbers = list[Decimal]


def softmax(logits: Numbers, temperature: Decimal) -> Numbers:
    exp = [(x / temperature).exp() for x in logits]
    return [x / sum(exp) for x in exp]


def divergence(a: Numbers, b: Numbers) -> Decimal:
    return sum((x * (x / y).ln() for x, y in zip(a, b, strict=True)), Decimal(0))


def make(name: str, temperature: str, student: str, teacher: str) -> tuple[Decimal, Numbers]:
    """Return the value and the gradient of one row."""
    t = Decimal(temperature)
    q, p = (softmax([Decimal(x) for x in text.split()], t) for text in (student, teacher))
    if name == "kl":
        return divergence(p, q), [(x - y) / t for x, y in zip(q, p, strict=True)]
    m = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
    of_q = divergence(q, m)
    gradient = [x / (2 * t) * ((x / y).ln() - of_q) for x, y in zip(q, m, strict=True)]
    return (divergence(p, m) + of_q) / 2, gradient


if __name__ == "__main__":
    getcontext().prec = 50
    value, slopes = make(*sys.argv[1:5])
    sys.stdout.write(f"{value:.17g}\n{' '.join(f'{slope:.17g}' for slope in slopes)}\n")
