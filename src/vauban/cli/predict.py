"""vauban predict: prints the smoothed classifier's answers, each right with probability at least 1 - alpha."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vauban.cli import common
from vauban.cli.certify import OnOption, RowsOption
from vauban.cli.common import example


@example("vauban predict --data mnist --smoothing gaussian:sigma=0.5 -k 1 -n 1000 --limit 20 --out answers.csv")
def predict(
    smoothing: common.SmoothingOption,
    source: common.SourceArgument = None,
    data: common.MaybeDataOption = None,
    model: common.ModelOption = None,
    weights: common.WeightsOption = None,
    k: Annotated[int, typer.Option("-k", help="how many labels, in order")] = 1,
    n: Annotated[int | None, typer.Option("-n", help="votes per input; exact: every view votes [1000]")] = None,
    alpha: common.AlphaOption = None,
    every: common.EveryOption = 1,
    limit: common.LimitOption = None,
    shuffle: common.ShuffleOption = None,
    skip_bad: common.SkipBadOption = False,
    workers: common.WorkersOption = None,
    input_range: common.InputRangeOption = None,
    standardise: common.StandardiseOption = None,
    batch: Annotated[str, typer.Option(help="how many compute shapes are prepared ahead; changes no result")] = "auto",
    rows: RowsOption = None,
    device: common.DeviceOption = "auto",
    precision: common.PrecisionOption = "fp32",
    backend: common.BackendOption = None,
    compile: common.CompileOption = False,
    tune: common.TuneOption = False,
    stochastic: common.StochasticOption = None,
    seed: common.SeedOption = None,
    on: OnOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="write CSV: index,labels,abstained")] = None,
    json: common.JsonOption = False,
) -> None:
    """Predict the top k labels of each input, or report it as undecided.

    To use the classifier that a run certified, give the --rows, --precision, --backend and --compile or --tune of that run.
    """
    from vauban.cli.build import check_out, classifier_and_data, data_of, read_in_flight
    from vauban.files import replace_file
    from vauban.report.numbers import percent, percent_up

    smoothed, data_set = classifier_and_data(
        model=model,
        weights=weights,
        data=data_of(source, data),
        smoothing=smoothing,
        every=every,
        limit=limit,
        shuffle=shuffle,
        skip_bad=skip_bad,
        workers=workers,
        input_range=input_range,
        standardise=standardise,
        stream=True,
        device=device,
        in_flight=read_in_flight(batch),
        rows=rows,
        precision=precision,
        backend=backend,
        compile="tuned" if tune else compile,
        stochastic=stochastic,
    )
    if out:
        check_out(out)
    predictions = smoothed.predict(data_set, k=k, n=n, alpha=alpha, seed=seed, on=on, progress=not json)
    inputs, truth = len(data_set), data_set.labels
    answers = list(zip(data_set.index.tolist(), predictions, strict=True))
    undecided = int(predictions.abstained.sum())
    result: dict[str, object] = {"inputs": inputs, "undecided": undecided / inputs}
    if truth is not None:
        right = sum(labels is not None and int(truth[i]) in labels for i, (_, labels) in enumerate(answers))
        result |= {"correct": right / inputs, "wrong": (inputs - right - undecided) / inputs}
    if out:
        lines = [f"{i},{' '.join(map(str, labels or ()))},{str(labels is None).lower()}" for i, labels in answers]
        replace_file(out, "\n".join(["index,labels,abstained", *lines, ""]).encode())
    if json:
        common.print_json(result | {"predictions": [{"index": i, "labels": labels} for i, labels in answers]})
        return
    for i, labels in answers[:20] if out is None else []:
        typer.echo(f"{i}: {'undecided' if labels is None else ' '.join(map(str, labels))}")
    if out is None and inputs > 20:
        typer.echo(f"… {inputs - 20} more (give --out to write them all)")
    rounded = {"correct": percent, "undecided": percent_up, "wrong": percent_up}
    shown = {key: rounded[key](value) for key, value in result.items() if isinstance(value, float)}
    common.print_table([f"top {k} of {inputs} inputs", ""], [[key, value] for key, value in shown.items()])
    if out:
        typer.echo(f"answers: {out}")
