"""What a right kernel may use works as on Metal, and the modes do what they say."""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from host.build import COMPILER_VARIABLE, NoCompilerError, compiler
from host.planted import N, run
from host.run import SCHEDULES, Mode, Schedule, run_kernel
from host.trace import KernelText, generate
from oracle import Matrix, number, to_float64

REDUCE = """
    threadgroup float s[2];
    float x = simd_sum(q[t]);
    if (lane == 0) s[simd] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = s[0] + s[1];"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_right_kernel_has_no_event(schedule: Schedule) -> None:
    result = run(REDUCE, schedule=schedule)
    assert result.complete
    assert result.events == []
    assert result.outputs["out"].tolist() == [sum(range(N))] * N


def test_signature_is_the_one_that_mlx_prints() -> None:
    generated = generate(
        KernelText("k", "out[0] = q[q_shape[0] - 1];"),
        {"q": mx.zeros(8, dtype=mx.bfloat16), "few": mx.zeros(7), "one": mx.array(1)},
        {"out": ((1,), mx.float32)},
        {"T": mx.float16, "K": 3, "B": True},
    )
    assert [(p.type, p.name, p.buffer) for p in generated.parameters] == [
        ("const device bfloat16_t*", "q", 0),
        ("const constant int*", "q_shape", 1),
        ("const constant float*", "few", 2),
        ("const constant int32_t&", "one", 3),
        ("device float*", "out", 4),
    ]
    assert generated.call.endswith("<float16_t, 3, 1>")


def test_shapes_scalars_and_template_arguments_reach_the_kernel() -> None:
    result = run_kernel(
        KernelText(
            "k", "out[0] = float(q_shape[1] * 100 + K * 10 + int(B)) + one + float(T(0.1));"
        ),
        inputs={"q": mx.zeros((2, 4)), "one": mx.array(1000.0)},
        outputs={"out": ((1,), mx.float32)},
        template={"T": mx.float16, "K": 3, "B": True},
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
    )
    assert result.events == []
    assert result.outputs["out"].item() == pytest.approx(1431 + float(np.float16(0.1)))


def test_positions_in_a_grid_with_edge_groups() -> None:
    source = """
        uint i = thread_position_in_grid.y * 40 + thread_position_in_grid.x;
        out[i] = float(threadgroup_position_in_grid.x * 10000
            + threadgroup_position_in_grid.y * 1000 + threads_per_threadgroup.x * 10
            + thread_position_in_threadgroup.y);"""
    result = run_kernel(
        KernelText("k", source),
        inputs={"q": mx.zeros(8)},
        outputs={"out": ((3, 40), mx.float32)},
        grid=(40, 3, 1),
        threadgroup=(32, 2, 1),
    )
    assert result.events == []
    y, x = np.mgrid[0:3, 0:40]
    want = x // 32 * 10000 + y // 2 * 1000 + np.where(x < 32, 32, 8) * 10 + y % 2
    assert np.array_equal(to_float64(result.outputs["out"]), want)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("simd_max(q[t])", lambda t: t // 32 * 32 + 31),
        ("simd_min(q[t])", lambda t: t // 32 * 32),
        ("simd_shuffle(q[t], ushort(5))", lambda t: t // 32 * 32 + 5),
        ("simd_broadcast(q[t], ushort(7))", lambda t: t // 32 * 32 + 7),
        ("simd_shuffle_xor(q[t], ushort(3))", lambda t: t ^ 3),
        ("simd_shuffle_up(q[t], ushort(1))", lambda t: t - 1 if t % 32 else math.nan),
        ("simd_shuffle_down(q[t], ushort(2))", lambda t: t + 2 if t % 32 < 30 else math.nan),
        ("select(q[t], -q[t], t > 3)", lambda t: -t if t > 3 else t),
        ("as_type<float>(as_type<uint>(q[t]) + 1)", lambda t: np.nextafter(np.float32(t), 99)),
        ("fma(q[t], 2.0, 1.0)", lambda t: 2 * t + 1),
        ("float(numeric_limits<half>::max()) + abs(-q[t])", lambda t: 65504 + t),
        ("float(isnan(NAN) && isinf(-INFINITY) && isfinite(q[t]))", lambda t: t >= 0),
        ("max(NAN, q[t]) + min(q[t], NAN)", lambda t: 2 * t),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_function_of_the_dialect(call: str, want: Callable[[int], float]) -> None:
    result = run(f"out[t] = {call};")
    assert result.events == []
    assert np.array_equal(
        to_float64(result.outputs["out"]), [float(want(t)) for t in range(N)], equal_nan=True
    )


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_rounds_as_mlx_does(dtype: mx.Dtype) -> None:
    rng = np.random.default_rng(0)
    exponents = rng.uniform(-45, 17, N - 6)
    x = np.append(np.exp2(exponents) * rng.choice([-1, 1], N - 6), [0, -0.0, math.inf, math.nan])
    # Halfway between two neighbours, on either side of an even one.
    x = np.append(x, [1 + 3 * 2.0**-11, 1 + 5 * 2.0**-9]).astype(np.float32)
    result = run("out[t] = static_cast<T>(q[t]);", q=mx.array(x), dtype=dtype)
    want = mx.array(x).astype(dtype)
    assert np.array_equal(to_float64(result.outputs["out"]), to_float64(want), equal_nan=True)


@pytest.mark.parametrize("offset", range(5))
def test_arrays_begin_where_they_are_asked_to(offset: int) -> None:
    source = """
        out[t] = float(ulong(q) % 16 / 4) * 10.0 + float(ulong(out) % 16 / 4);
        float4 v = *(const device float4*)(q + (4 - ulong(q) % 16 / 4) % 4);
        out[t] += v.x * 100.0;"""
    result = run(source, offsets={"q": offset, "out": 3})
    assert result.events == []
    first = (4 - offset % 4) % 4
    assert result.outputs["out"].tolist() == [first * 100 + offset % 4 * 10 + 3] * N
    # The bounds and the alignment move along.
    for at, kind in ((-1, "out of bounds"), (N, "out of bounds"), (0, "misaligned access")):
        load = f"*(const device {'float4' if at == 0 else 'float'}*)(q + {at})"
        found = run(f"out[t] = float4({load}).x;", offsets={"q": offset}).kinds()
        assert (kind in found) == (at != 0 or offset % 4 != 0)


def test_random_schedule_follows_its_seed() -> None:
    source = """
        threadgroup float s[1];
        s[0] = q[t];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[t] = s[0];"""
    runs = [run(source, schedule="random", seed=seed).outputs["out"] for seed in (1, 1, 2)]
    assert mx.array_equal(runs[0], runs[1])
    assert not mx.array_equal(runs[0], runs[2])


def test_lines_that_did_not_run_are_known() -> None:
    result = run("\nfloat x = q[t];\nif (x > 1000.0) {\nx = fast::exp(x);\n}\nout[t] = x;")
    lines = {line for file, line in result.lines if file == "planted"}
    assert lines == {2, 3, 4, 5, 6}
    assert ("planted", 6) in result.lines_run
    assert ("planted", 4) not in result.lines_run


SPECIAL = [math.inf, -math.inf, math.nan, 1e-40, -1.0, 0.0, 1.0, 2.0]


def test_poison_makes_fast_functions_useless_where_metal_promises_nothing() -> None:
    q = mx.array(SPECIAL * 8)
    mode = Mode(fast="poison")
    fast = to_float64(run("out[t] = fast::exp2(q[t]);", q=q, mode=mode).outputs["out"])[:8]
    assert np.isnan(fast[[0, 1, 3]]).all()
    assert np.isfinite(fast[2])
    assert fast[4:].tolist() == [0.5, 1.0, 2.0, 4.0]
    fast = to_float64(run("out[t] = fast::log2(q[t]);", q=q, mode=mode).outputs["out"])[:8]
    assert np.isnan(fast[[0, 1, 3, 4, 5]]).all()
    assert fast[[6, 7]].tolist() == [0.0, 1.0]
    precise = to_float64(run("out[t] = precise::exp2(q[t]);", q=q, mode=mode).outputs["out"])[:8]
    assert np.array_equal(precise[:4], [math.inf, 0, math.nan, 1], equal_nan=True)


def test_poison_takes_the_words_about_max_literally() -> None:
    result = run("out[t] = max(NAN, q[t]);", mode=Mode(fast="poison"))
    assert mx.isnan(result.outputs["out"]).all()


@pytest.mark.parametrize(
    ("function", "exact", "low", "high", "bound"),
    [
        ("fast::exp2", np.exp2, -20, 0, lambda x, ulp: (3 + np.floor(np.abs(2 * x))) * ulp),
        ("fast::exp", np.exp, -20, 0, lambda x, ulp: (3 + np.floor(np.abs(2 * x))) * ulp),
        ("fast::log2", np.log2, 0.5, 2, lambda _, ulp: 2.0**-22 + ulp / 2),
        ("fast::log", np.log, 0.5, 2, lambda _, ulp: 2.0**-21 + ulp / 2),
        ("fast::log2", np.log2, 3, 99, lambda _, ulp: 2 * ulp),
        ("fast::log", np.log, 3, 99, lambda _, ulp: 3 * ulp),
        ("precise::exp2", np.exp2, -20, 0, lambda _, ulp: 4 * ulp),
        ("precise::log2", np.log2, 3, 99, lambda _, ulp: 4 * ulp),
    ],
)
def test_perturbed_functions_use_metals_bounds_and_keep_within(
    function: str,
    exact: np.ufunc,
    low: float,
    high: float,
    bound: Callable[[Matrix, Matrix], Matrix],
) -> None:
    x = np.random.default_rng(1).uniform(low, high, N).astype(np.float32)
    shares = []
    for seed in range(3):
        mode = Mode(fast="perturb", seed=seed)
        got = run(f"out[t] = {function}(q[t]);", q=mx.array(x), mode=mode).outputs["out"]
        want = exact(x.astype(np.float64))
        ulp = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
        shares.append((to_float64(got) - want) / bound(x.astype(np.float64), ulp))
    assert np.abs(shares).max() <= 1
    assert np.min(shares) < -0.7
    assert np.max(shares) > 0.7


def test_denormals_are_flushed_when_asked() -> None:
    q = mx.array([1e-39, 1e-20] * 32)
    source = "out[t] = q[t] * (t & 1 ? 1e-20 : 1.0);"
    assert to_float64(run(source, q=q).outputs["out"]).all()
    assert not to_float64(run(source, q=q, mode=Mode(flush_denormals=True)).outputs["out"]).any()


def test_products_are_contracted_when_asked() -> None:
    q = mx.array([1.0 + 2.0**-12] * N)
    source = "float x = q[t]; float y = x * x; out[t] = y - q[t ^ 1] * q[t ^ 1];"
    assert not to_float64(run(source, q=q).outputs["out"]).any()
    assert to_float64(run(source, q=q, mode=Mode(contract=True)).outputs["out"]).any()


def test_simd_sums_are_taken_in_the_order_asked_for() -> None:
    q = mx.array(np.random.default_rng(0).standard_normal(N).astype(np.float32))
    sums = {
        number(run("out[t] = simd_sum(q[t]);", q=q, mode=Mode(sums=order)).outputs["out"][0])
        for order in ("up", "down", "tree")
    }
    assert len(sums) > 1
    assert max(sums) == pytest.approx(min(sums), rel=1e-5)


def test_missing_compiler_is_said_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, "no-such-clang")
    compiler.cache_clear()
    try:
        with pytest.raises(NoCompilerError, match="apt-get install clang-19") as raised:
            compiler()
        assert "'no-such-clang' (MLX_DISTILL_HOST_CLANG)" in str(raised.value)
    finally:
        monkeypatch.undo()
        compiler.cache_clear()
