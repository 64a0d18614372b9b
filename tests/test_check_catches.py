"""`mlx-distill check`: a wrong loss fails, and the report says which case and by how much."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Unpack, cast

import mlx.core as mx
import pytest

from mlx_distill import OutOfRangeError, kl_div_loss
from mlx_distill.cli import main
from mlx_distill.cli.check import calls, large
from mlx_distill.cli.check.calls import LossFunction, Subject
from subjects import DTYPES, Options

PLAIN = ("--quick", "--backend", "mlx")

Json = dict[str, object]
Change = Callable[[mx.array, mx.array], mx.array]


def run_json(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Json]:
    code = main(["check", "--json", *PLAIN, *options])
    captured = capsys.readouterr()
    assert captured.err == ""
    found: Json = json.loads(captured.out)
    return code, found


def objects(found: Json, key: str) -> list[Json]:
    items = found[key]
    assert isinstance(items, list)
    return items


def spoil(monkeypatch: pytest.MonkeyPatch, wrong: LossFunction) -> None:
    """Put `wrong` in the place of the KL divergence, and take JS out."""
    monkeypatch.setitem(calls.LOSSES, "kl", wrong)
    monkeypatch.delitem(calls.LOSSES, "js")


def with_gradient(change: Change) -> LossFunction:
    """Return the KL divergence with a gradient changed by `change`, called on it and the logits."""

    def loss(logits_q: mx.array, logits_p: mx.array, **options: Unpack[Options]) -> mx.array:
        @mx.custom_function
        def changed(q: mx.array) -> mx.array:
            return kl_div_loss(q, logits_p, **options)

        @changed.vjp
        def _(q: mx.array, cotangent: mx.array, _value: mx.array) -> mx.array:
            def bare(x: mx.array) -> mx.array:
                return kl_div_loss(x, logits_p, **options)

            return change(mx.vjp(bare, [q], [cotangent])[1][0], q)

        return cast(mx.array, changed(logits_q))

    return loss


def with_value(change: Change) -> LossFunction:
    """Return the KL divergence with a value changed by `change`, called on it and the logits."""

    def loss(logits_q: mx.array, logits_p: mx.array, **options: Unpack[Options]) -> mx.array:
        return change(kl_div_loss(logits_q, logits_p, **options), logits_q)

    return loss


WRONG: dict[str, tuple[LossFunction, str]] = {
    "gradient off by 2e-5": (with_gradient(lambda g, _: g * (1 + 2e-5)), "V1000/rows3-T1"),
    "gradient of zeros": (with_gradient(lambda g, _: g * 0), "V151936/rows3-T1"),
    "gradient in bfloat16": (
        with_gradient(lambda g, _: g.astype(mx.bfloat16).astype(g.dtype)),
        "V4097/misaligned-alike",
    ),
    "gradient of a dropped row": (
        with_gradient(lambda g, q: mx.where(mx.isnan(q), q, g)),
        "edges/cotangent-0-alone",
    ),
    "value off by 3e-6": (with_value(lambda v, _: v + 3e-6), "V7/near-equal"),
    "value below zero": (with_value(lambda v, _: v - 1e-9), "V1000/near-equal"),
    "nan in every row": (
        with_value(lambda v, _: mx.where(mx.isnan(v).any(), mx.nan, v)),
        "edges/alone-T0.7",
    ),
    "infinity cut off": (with_value(lambda v, _: mx.minimum(v, 1e30)), "edges/alone-T0.7"),
    "rows exchanged": (with_value(lambda v, _: v[::-1]), "V7/rows9-T1"),
    "wrong dtype": (with_value(lambda v, _: v.astype(mx.float16)), "V7/rows1-T1"),
    "wrong shape": (with_value(lambda v, _: v[:, None]), "V7/rows1-T1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_loss_fails_and_its_case_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    wrong, place = WRONG[name]
    spoil(monkeypatch, wrong)
    case = f"mlx/kl/float32/{place}"
    code, found = run_json(capsys, "--only", case)
    assert code == 1
    assert found["passed"] is False
    (failure,) = objects(found, "failures")
    assert failure["case"] == case
    assert failure["again"] == f"mlx-distill check --backend mlx --only {case}"
    assert main(["check", *PLAIN, "--only", case]) == 1
    printed = capsys.readouterr().out
    assert case in printed
    assert "FAIL" in printed
    assert printed.splitlines()[-1].startswith("FAILED: ")


def test_failure_says_where_and_by_how_much(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, with_gradient(lambda g, _: mx.concatenate([g[:, :2], 2 * g[:, 2:]], -1)))
    _, found = run_json(capsys, "--only", "float32/edges/alone-T0.7")
    (failure,) = objects(found, "failures")
    (miss, *_) = objects(failure, "misses")
    assert miss["what"] == "gradient"
    assert miss["row"] == "ordinary, first: q [0.5, -1, 2, 0], p [1, 0.25, -0.5, 3]"
    assert miss["at"] in ([0, 2], [0, 3])
    assert isinstance(miss["got"], float)
    assert miss["got"] == pytest.approx(2 * float(str(miss["expected"])), rel=1e-5)
    assert float(str(miss["share"])) > 1000


def test_numbers_that_json_lacks_are_strings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, with_value(lambda v, _: mx.minimum(v, 1e30)))
    _, found = run_json(capsys, "--only", "float32/edges/alone-T0.7")
    (failure,) = objects(found, "failures")
    miss = objects(failure, "misses")[0]
    assert (miss["expected"], miss["share"]) == ("inf", "inf")
    assert miss["got"] == pytest.approx(1e30)


def test_runs_that_differ_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls_made = iter(range(1000))
    spoil(
        monkeypatch,
        with_value(lambda v, _: v + mx.stop_gradient(v * 1e-6 * (next(calls_made) == 4))),
    )
    code, found = run_json(capsys, "--only", "float32/repeats")
    assert code == 1
    (failure,) = objects(found, "failures")
    (miss,) = objects(failure, "misses")
    assert miss["what"] == "value"
    assert str(miss["row"]).startswith("run 4 against run 0, ")


def test_kernel_that_fails_is_a_failed_row_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(logits_q: mx.array, logits_p: mx.array, **options: Unpack[Options]) -> mx.array:
        if logits_q.dtype == mx.float16:
            raise RuntimeError("unable to compile")
        return kl_div_loss(logits_q, logits_p, **options)

    spoil(monkeypatch, fails)
    code, found = run_json(capsys, "--only", "/V7/")
    assert code == 1
    rows = {row["dtype"]: row for row in objects(found, "rows")}
    assert [rows[dtype]["passed"] for dtype in DTYPES] == [True, False, True]
    assert "left out after 3 errors" in str(rows["float16"]["note"])
    errors = {failure["error"] for failure in objects(found, "failures")}
    assert errors == {"RuntimeError: unable to compile"}
    assert main(["check", *PLAIN, "--only", "/V7/"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("RuntimeError: unable to compile") == 1
    assert "as above" in printed


def test_loss_that_writes_its_inputs_or_differentiates_the_teacher_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[mx.array] = []
    run_call = calls.run_call

    def writes(subject: Subject, call: calls.Call) -> calls.Outcome:
        outcome = run_call(subject, call)
        call.logits_p[0, 0] = 7.0
        given.append(call.logits_p)
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlx_distill.cli.check.judge.run_call", writes)
        code, found = run_json(capsys, "--only", "kl/float32/V7/rows3-T1")
    assert (code, len(given)) == (1, 1)
    assert objects(found, "failures")[0]["error"] == "the logits were written to"

    def symmetric(logits_q: mx.array, logits_p: mx.array, **options: Unpack[Options]) -> mx.array:
        return kl_div_loss(logits_p, logits_q, **options)

    spoil(monkeypatch, symmetric)
    code, found = run_json(capsys, "--only", "kl/float32/V7/rows3-T1")
    assert code == 1
    assert objects(found, "failures")[0]["error"] == "the gradient in logits_p is not 0"


def test_many_failures_are_cut_short_in_print_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, with_value(lambda v, _: v + 1))
    _, found = run_json(capsys, "--only", "float32/V7/")
    assert len(objects(found, "failures")) > 5
    assert main(["check", *PLAIN, "--only", "float32/V7/"]) == 1
    printed = capsys.readouterr().out
    assert "  and 4 more, see --json" in printed.splitlines()
    assert "    and 6 more, see --json" in printed.splitlines()


def test_huge_logits_are_compared_in_a_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_VOCABULARY", 64)
    subject = Subject("mlx", "kl", "bfloat16")
    huge = large._many_entries  # noqa: SLF001 - sizes that only a large GPU holds
    assert huge(subject, 1 << 12).not_run.startswith("4096 entries need a GPU")
    monkeypatch.setattr(large, "_gpu_memory", lambda: 1 << 40)
    verdict = huge(subject, 1 << 12)
    assert (verdict.rows, verdict.misses, verdict.error) == (21, (), "")
    monkeypatch.setitem(calls.LOSSES, "kl", with_value(lambda v, _: v.at[-1].add(1.0)))
    assert {miss.row for miss in huge(subject, 1 << 12).misses} == {"row 70"}


def test_rows_beyond_a_grid_have_to_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(logits_q: mx.array, *_: object, **__: object) -> mx.array:
        raise OutOfRangeError("rows", "must be < 7", str(logits_q.shape[0]))

    def accepts(logits_q: mx.array, *_: object, **__: object) -> mx.array:
        return logits_q[:, 0]

    monkeypatch.setattr(large, "_TOO_MANY_ROWS", 9)
    case = dict(large.large_cases(Subject("cuda", "kl", "float32")))["too-many-rows"]
    monkeypatch.setitem(calls.LOSSES, "kl", refuses)
    assert case().error == ""
    monkeypatch.setitem(calls.LOSSES, "kl", accepts)
    assert case().error == "expected OutOfRangeError"
