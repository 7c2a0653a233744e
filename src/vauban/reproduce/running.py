"""Runs an entry: trains what is missing, certifies, verifies, compares and draws; the same call goes on where one was stopped."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from vauban.errors import BadInput, RunRefused
from vauban.files import differences, in_turn, locked, read_json, replace_file, write_json
from vauban.reproduce import steps as doing
from vauban.reproduce.budget import stop_when, within
from vauban.reproduce.choosing import choose, chosen_steps, how_chosen, seeds_made
from vauban.reproduce.comparing import Opened, compare, finished
from vauban.reproduce.entry import Entry
from vauban.reproduce.inputs import refuse_inputs_that_choose, refuse_missing_data
from vauban.reproduce.made_by import commands_of_runs, in_place_of, matches, options_text
from vauban.reproduce.networks import shared
from vauban.reproduce.outcome import PAGE, RESULTS, Outcome, Unfinished, write
from vauban.reproduce.steps import ABOUT, RECIPES, Step
from vauban.reproduce.timing import Ledger
from vauban.reproduce.using import use

LEDGER = "ledger.json"


@dataclass(frozen=True)
class Options:
    """How an entry is run. `only`: axis and value that a point of the grid must have; `printed`: train as the paper prints it in
    place of Vauban's own recipe; `settings`: fields of the recipe in place of the entry's; `inputs`: which ones are certified,
    and `votes`: how many are counted for each, in place of the entry's; `folder`: where its data are; `use`: runs made
    elsewhere, by name; `networks`: a folder of trained networks that entries share; `pack`: gzip finished runs;
    `say` is told of every step; `bar` makes a progress bar from a text, a total and its unit. `pieces`: the runs to make, by
    name, in a process beside others; it compares nothing. `make`: False compares what is there and makes nothing. Of agents:
    `jobs`, how many are trained at a time; `rl_seeds` and `rl_steps`, in place of the entry's. `given`: the entry as the
    command names it, a name or a file."""

    device: str = "cpu"
    budget: float | None = None
    quick: bool = False
    printed: bool = False
    seeds: int = 1
    only: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None
    votes: int | None = None
    folder: Path | None = None
    use: Mapping[str, Path] = field(default_factory=dict)
    networks: Path | None = None
    pack: bool = True
    progress: bool = True
    say: Callable[[str], None] = print
    bar: Callable[..., Any] | None = None
    pieces: tuple[str, ...] = ()
    make: bool = True
    jobs: int | None = None
    rl_seeds: int | None = None
    rl_steps: int | None = None
    given: str | None = None


def adapted(entry: Entry, options: Options) -> Entry:
    """An entry with the options in it that change what is made."""
    if options.printed:
        entry = replace(entry, train=_as_printed(entry))
    made = (entry.quickened() if options.quick else entry).located(options.folder)
    made = replace(made, train=_changed(made.train, options.settings))
    if options.inputs is not None:
        made = replace(made, certify={**made.certify, "inputs": options.inputs})
    if options.votes is not None:
        made = made.with_votes(options.votes)
    if options.rl_steps is not None:
        made = replace(made, rl={**made.rl, "steps": options.rl_steps})
    return made


def reproduce(entry: Entry, out: Path, options: Options) -> Outcome:
    """Run an entry into a folder, within the budget; where that is spent, raises `Unfinished` after writing what there is."""
    made = adapted(entry, options)
    refuse_missing_data(made)
    refuse_inputs_that_choose(made)
    doing.refuse_bad_settings(made)
    out.mkdir(parents=True, exist_ok=True)
    with in_turn(out / ABOUT):
        _begin(made, out, options)
    if made.kind == "analytic":
        return _analytic(made, out, options)
    if made.kind == "rl":
        from vauban.reproduce import learning

        def learn(spent: threading.Event) -> None:
            stop_when(spent)
            learning.train_all(made, out, options, partial(stop_when, spent))

        return _budgeted(out, options, learn, lambda: learning.finish(made, out, options))
    with in_turn(out / doing.USED):
        use([Step(made, out, point) for point in made.points()], options.use)
    listed, ledger = steps_of(made, out, options), Ledger(out / LEDGER)
    if options.pieces:
        known = [step.name for step in listed]
        for name in options.pieces:
            if name not in known:
                raise BadInput(f"{entry.name} has no run {name}: give one of {', '.join(known)}")
        listed = [step for step in listed if step.name in options.pieces]

    def run(spent: threading.Event) -> None:
        if not options.make:
            return
        _run_all(made, listed, options, ledger, spent)
        if made.choose and not options.pieces:
            chosen = choose(made, out, options.seeds)
            listed.extend(chosen)
            _run_all(made, chosen, options, ledger, spent)

    finish = _kept if options.pieces else partial(_finish, replaced=in_place_of(entry, options))
    return _budgeted(out, options, run, lambda: finish(made, out, listed, options, ledger))


def left_to_do(entry: Entry, out: Path, options: Options) -> Outcome:
    """What is not finished of an entry, where a call ends before it comes to it; nothing is made, compared or written."""
    made, outcome = adapted(entry, options), Outcome(entry, out, quick=options.quick, options=options_text(options))
    if made.kind == "analytic":
        outcome.missing = [] if (out / RESULTS).exists() else [entry.name]
    elif made.kind == "rl":
        from vauban.reproduce import learning

        outcome.missing = learning.missing(made, out, options)
    else:
        listed = [*steps_of(made, out, options), *chosen_steps(made, out, options.seeds)]
        outcome.missing = _missing(made, out, listed, options)
        outcome.commands = commands_of_runs(made, options, listed)
    return outcome


def _missing(entry: Entry, out: Path, listed: Sequence[Step], options: Options) -> list[str]:
    """The names of runs that are not finished."""
    done = finished(listed)
    later = entry.choose and not chosen_steps(entry, out, options.seeds)
    return [step.name for step in listed if step not in done] + (["the run on test inputs"] if later else [])


def _as_printed(entry: Entry) -> dict[str, Any]:
    """What an entry says of training without its changes of Vauban's recipe, and with the network of the paper."""
    train = entry.train
    if "printed" not in train:
        if entry.kind == "runs" and str(train.get("recipe", "best")).startswith("best"):
            raise BadInput(f"{entry.name} names no training as a paper prints it: leave --printed out")
        return dict(train)
    kept = {key: value for key, value in train.items() if key not in ("settings", "begin", "together", "printed_model")}
    return {**kept, **({"model": train["printed_model"]} if "printed_model" in train else {})}


def _changed(train: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says of training, with these settings in place of its own, also where others start from."""
    begin = {"begin": _changed(train["begin"], settings)} if "begin" in train else {}
    return {**train, **begin, "settings": {**train.get("settings", {}), **settings}}


def _budgeted(
    out: Path, options: Options, run: Callable[[threading.Event], None], finish: Callable[[], Outcome]
) -> Outcome:
    """Run within the budget, and finish with what there is; where the budget is spent, raises `Unfinished` after that.

    `run` gets the event that says that the budget is spent.
    """
    spent = threading.Event()
    try:
        with within(options.budget, spent):
            run(spent)
    except KeyboardInterrupt:
        outcome = finish()
        if not spent.is_set():
            raise
        if not outcome.missing:
            return outcome
        left = "1 run" if len(outcome.missing) == 1 else f"{len(outcome.missing)} runs"
        raise Unfinished(
            f"the budget is spent with {left} left; what was done is kept and compared in "
            f"{out / PAGE}: the same command goes on",
            outcome,
        ) from None
    return finish()


def steps_of(entry: Entry, out: Path, options: Options) -> list[Step]:
    """The runs of an entry; where the test run is chosen among the grid, first those on validation inputs."""
    part = "validation" if entry.choose else "test"
    points = [point for point in entry.points() if matches(point, options.only)]
    return [Step(entry, out, point, seed, part) for point in points for seed in range(options.seeds)]


def _kept(entry: Entry, out: Path, listed: Sequence[Step], options: Options, ledger: Ledger) -> Outcome:
    """Pack the runs of a piece that are finished; the process that stands over the pieces compares them."""
    for step in finished(listed):
        _pack(step, options)
    return Outcome(entry, out, missing=[step.name for step in listed if step not in finished(listed)])


def _run_all(entry: Entry, listed: Sequence[Step], options: Options, ledger: Ledger, spent: threading.Event) -> None:
    for number, step in enumerate(listed, start=1):
        where = f"[{number}/{len(listed)}] {step.name}"
        if entry.kind == "commands":
            stop_when(spent)
            options.say(f"{where}: {len(step.commands)} commands")
            with ledger.timed(step.name, "commands") as timing:
                timing.counts = doing.run_commands(step, options.device, quiet=not options.progress)
            continue
        for one in () if step.sealed or step.weights.exists() else (step.first, step):
            if one is not None and not one.weights.exists():
                stop_when(spent)
                options.say(f"{where}: training {one.weights.name}")
                one.weights.parent.mkdir(parents=True, exist_ok=True)
                with in_turn(one.weights), ledger.timed(one.weights.stem, "training") as timing:
                    timing.counts = _train(one, options)
        if not step.sealed:
            stop_when(spent)
        with ledger.timed(step.name, "certifying") as timing:
            options.say(f"{where}: certifying {step.smoothing}")
            timing.counts = doing.certify(step, options.device, options.progress)


def _train(step: Step, options: Options) -> bool:
    """Train the weights of a step; whether anything was done: they may be there meanwhile, or among the shared networks."""
    with shared(step, options.printed, options.networks) as taken:
        return not taken and _train_here(step, options)


def _train_here(step: Step, options: Options) -> bool:
    if options.bar is None:
        return doing.train(step, options.device, options.printed)
    with options.bar(f"training {step.weights.stem}", 100) as advance:
        shown = 0

        def callback(progress: Any) -> None:
            nonlocal shown
            now = 100 * progress.step // progress.steps
            advance(now - shown)
            shown = now

        return doing.train(step, options.device, options.printed, callback)


def _finish(
    entry: Entry, out: Path, listed: Sequence[Step], options: Options, ledger: Ledger, replaced: str
) -> Outcome:
    """Pack and verify the runs that are finished, compare, draw, and write the page."""
    outcome = Outcome(entry, out, quick=options.quick, options=options_text(options), replaced=replaced)
    with in_turn(out / PAGE):
        outcome.seconds = ledger.seconds
        return _finish_alone(outcome, listed, options)


def _finish_alone(outcome: Outcome, listed: Sequence[Step], options: Options) -> Outcome:
    from vauban.reproduce.pictures import draw_all

    entry, out = outcome.entry, outcome.out
    choice = chosen_steps(entry, out, options.seeds)
    listed = list({step.run: step for step in [*listed, *choice]}.values())
    every = list({step.run: step for step in [*listed, *_others(entry, out, listed, options)]}.values())
    done = finished(every)
    outcome.commands = commands_of_runs(entry, options, every)
    opened = Opened()
    for step in done:
        _pack(step, options)
        outcome.verified.append(_verified(step))
    outcome.missing = _missing(entry, out, listed, options)
    outcome.chosen = how_chosen(entry, out, options.seeds, opened)
    outcome.rows = compare(entry, every, opened)
    try:
        outcome.pictures = draw_all(entry, every, outcome.rows, opened, out) if done else []
    except ImportError as problem:  # numbers and runs need no Matplotlib
        options.say(f"no pictures: {problem}")
    write(outcome)
    return outcome


def _others(entry: Entry, out: Path, listed: Sequence[Step], options: Options) -> list[Step]:
    """Runs of the whole grid that an earlier call made, with other points or seeds than this one."""
    parts = ("validation", "test") if entry.choose else ("test",)
    seeds = seeds_made(out, options.seeds)
    choice = [step.point for step in chosen_steps(entry, out, options.seeds)]
    every = [Step(entry, out, point, seed, part) for part in parts for point in entry.points() for seed in seeds]
    return finished([step for step in every if not entry.choose or step.part != "test" or step.point in choice])


def _verified(step: Step) -> str:
    from vauban.runs.verify import verify_run

    verdict = verify_run(step.run)
    elsewhere = f", made elsewhere ({read_json(step.out / doing.USED)[step.name]})" if step.used else ""
    return f"{step.name}: {verdict.inputs:,} inputs, {verdict.votes:,} votes{elsewhere}"


def _pack(step: Step, options: Options) -> None:
    if options.pack and not step.used:
        with suppress(RunRefused), locked(step.run):  # another process may be at its end with it
            pack(step.run)


def pack(run: Path) -> None:
    """Gzip the manifest, votes and claims of a sealed run, which are read so everywhere; nothing else changes."""
    from vauban.runs.manifest import FILE
    from vauban.runs.store import SEAL

    sealed = [str(name) for name in read_json(run / SEAL) if str(name).endswith(("s.jsonl", ".csv"))]
    for name in (FILE, *sealed):
        plain = run / name
        if plain.is_file() and name != "extensions.jsonl":
            replace_file(run / f"{name}.gz", gzip.compress(plain.read_bytes(), 9, mtime=0))
            plain.unlink()


def _begin(entry: Entry, out: Path, options: Options) -> None:
    """Keep what the folder is about; a folder with another experiment is refused. What a run keeps of its votes makes none."""
    about = {
        "entry": entry.name,
        "quick": options.quick,
        "printed": options.printed,
        "data": entry.data,
        "smoothing": entry.smoothing,
        "train": dict(entry.train),
        "certify": dict(entry.certify),
        "choose": dict(entry.choose),
        **({"rl": dict(entry.rl)} if entry.rl else {}),
        **({"prepare": list(entry.prepare)} if entry.prepare else {}),
        "commands": list(entry.commands),
    }
    if entry.kind == "runs":
        about[RECIPES] = _recipes(entry, out, options)
    file = out / ABOUT
    if not file.exists():
        strange = [path.name for path in out.iterdir() if not path.name.startswith(".")]
        if strange:
            raise RunRefused(
                f"{out} is not empty and holds no experiment (it holds {min(strange)}): give another --out"
            )
        write_json(file, about)
        return
    kept = read_json(file)
    now = json.loads(json.dumps(about))
    was, here = kept.pop(RECIPES, {}), now.pop(RECIPES, {})
    earlier, later = ({name: made[name] for name in was if name in here} for made in (was, here))
    unlike = next(differences(kept, now, ignore=("certify.keep",)), None) or next(differences(earlier, later), None)
    if unlike is not None and not _made(out):
        write_json(file, about)
        return
    if unlike is not None:
        raise RunRefused(f"{out} holds another experiment ({unlike}): give the same options, or another --out")
    if set(here) - set(was) and was:  # points that the grid did not have
        write_json(file, {**kept, RECIPES: {**was, **here}})


def _made(out: Path) -> list[Path]:
    """What an experiment has left in its folder, besides notes about itself."""
    notes = {ABOUT, LEDGER}
    return [path for path in out.rglob("*") if path.is_file() and path.name[0] != "." and path.name not in notes]


def _recipes(entry: Entry, out: Path, options: Options) -> dict[str, Any]:
    """The recipe of every point, in full: a name such as best may mean another one in another version."""
    found = {}
    for point in entry.points():
        step = Step(entry, out, point)
        for one in (step.first, step):
            if one is not None:
                recipe, model = doing.recipe_of(one, options.printed)
                found[one.weights.stem] = {"model": model, **asdict(recipe)}
    return found


def _analytic(entry: Entry, out: Path, options: Options) -> Outcome:
    from vauban.reproduce.analytic import FIGURES

    rows, pictures = FIGURES[entry.analytic](entry, out)
    outcome = Outcome(entry, out, rows, pictures, commands=commands_of_runs(entry, options, [Step(entry, out, {})]))
    write(outcome)
    return outcome
