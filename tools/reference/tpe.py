#!/usr/bin/env python3
"""Writes what Optuna's TPE makes of random histories: the split, the kernels, the log-ratios at fixed points.

    tpe.py --seed 1 --count 200 --out FILE.json.gz

The histories mix float, logarithmic, stepped, integer and categorical parameters, conditional ones too, and complete,
pruned, running, failed and infeasible trials, with one, two or three objectives. Log-ratios are asked for a few points
at a time, and NumPy is kept from its vectorized functions: both change the last bits of Optuna's own answers, which
narrow intervals magnify, and the vectorized sort leaves equal values in another order on every kind of processor.
"""
import argparse
import gzip
import json
import math
import os
import random

os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V3 X86_V4 AVX512_ICL AVX512_SPR")

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution, distribution_to_json
from optuna.samplers import TPESampler
from optuna.samplers._tpe import sampler as tpe
from optuna.trial import TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
STATES = [TrialState.COMPLETE] * 5 + [TrialState.PRUNED] * 2 + [TrialState.RUNNING, TrialState.FAIL]


def short(value, digits=4):
    """Few digits: the file stays small, and equal values occur."""
    return float(f"{value:.{digits}g}")


def draw_distribution(rng):
    kind = rng.choice(["float", "log", "step", "int", "int step", "int log", "categorical", "wide"])
    low = short(rng.uniform(-10, 10))
    if kind == "float":
        return FloatDistribution(low, low + short(rng.uniform(0.1, 30)))
    if kind == "log":
        return FloatDistribution(low := short(10 ** rng.uniform(-8, -1)), short(low * 10 ** rng.uniform(0.5, 6)), log=True)
    if kind == "step":
        step = rng.choice([0.05, 0.1, 0.25, 0.5])
        return FloatDistribution(0.0, step * rng.randint(2, 30), step=step)
    if kind == "int":
        return IntDistribution(rng.randint(-20, 0), rng.randint(1, 60))
    if kind == "int step":
        return IntDistribution(128, 512, step=rng.choice([8, 32, 64]))
    if kind == "int log":
        return IntDistribution(rng.randint(1, 4), rng.randint(8, 4096), log=True)
    if kind == "wide":
        return IntDistribution(1, 65535)
    return CategoricalDistribution(rng.sample(["a", "b", 3, 4.5, True, None, "g"], rng.randint(2, 7)))


def draw_value(distribution, rng):
    d = distribution
    if isinstance(d, CategoricalDistribution):
        return rng.choice(d.choices)
    if isinstance(d, IntDistribution):
        if d.log:
            return round(math.exp(rng.uniform(math.log(d.low), math.log(d.high))))
        return d.low + d.step * rng.randint(0, (d.high - d.low) // d.step)
    if d.step is not None:
        return min(d.low + d.step * rng.randint(0, round((d.high - d.low) / d.step)), d.high)
    value = math.exp(rng.uniform(math.log(d.low), math.log(d.high))) if d.log else rng.uniform(d.low, d.high)
    return min(max(short(value), d.low), d.high)


def draw_params(space, conditional, rng):
    params = {}
    for name, distribution in space.items():
        parent = conditional.get(name)
        if parent is None or str(params.get(parent[0])) == parent[1]:
            params[name] = draw_value(distribution, rng)
    return params


def draw_trial(space, conditional, directions, constrained, rng):
    state = rng.choice(STATES)
    params = draw_params(space, conditional, rng)
    attrs = {}
    if constrained and state.is_finished() and rng.random() < 0.8:
        attrs["constraints:memory"] = short(rng.uniform(-1, 0.7), 2)
        if rng.random() < 0.3:
            attrs["constraints"] = [short(rng.uniform(-1, 0.5), 2)]
    reported = {}
    if len(directions) == 1 and rng.random() < (0.8 if state == TrialState.PRUNED else 0.3):
        reported = {step: short(rng.gauss(0, 1), 2) for step in range(rng.randint(1, 6))}
        if rng.random() < 0.1:
            reported[max(reported)] = rng.choice([math.nan, math.inf, -math.inf])
    values = None
    if state == TrialState.COMPLETE:
        values = [short(rng.gauss(0, 1), 2) for _ in directions]
        if rng.random() < 0.03:
            values[0] = rng.choice([math.inf, -math.inf]) if len(directions) == 1 else values[0]
    if state == TrialState.RUNNING and rng.random() < 0.5:
        announced = {name: draw_value(d, rng) for name, d in space.items() if rng.random() < 0.7}
        attrs["tpe:relative_params:0"] = json.dumps(announced)
        params = {name: value for name, value in params.items() if rng.random() < 0.5}
    frozen = create_trial(
        state=TrialState.COMPLETE, values=[0.0] * len(directions), params=params,
        distributions={name: space[name] for name in params}, system_attrs=attrs, intermediate_values=reported,
    )
    frozen.state, frozen.values = state, values
    return frozen


def make_history(rng):
    space = {f"p{index}": draw_distribution(rng) for index in range(rng.randint(1, 5))}
    conditional = {}
    chooser = next((n for n, d in space.items() if isinstance(d, CategoricalDistribution)), None)
    if chooser is not None and rng.random() < 0.6:
        later = [name for name in space if name > chooser]
        for name in later:
            if rng.random() < 0.6:
                conditional[name] = (chooser, str(rng.choice(space[chooser].choices)))
    objectives = rng.choice([1, 1, 1, 1, 2, 2, 3, 4])
    directions = [rng.choice(["minimize", "maximize"]) for _ in range(objectives)]
    count = rng.choice([3, 12, 15, 20, 25, 30, 35, 40, 45, 60]) if rng.random() < 0.97 else 320
    constrained = rng.random() < 0.4
    trials = [draw_trial(space, conditional, directions, constrained, rng) for _ in range(count)]
    return directions, trials, bool(conditional) and rng.random() < 0.8


def numbers(array):
    return [float(x) for x in np.asarray(array).ravel()]


def estimator(parzen, names):
    mixture = parzen._mixture_distribution
    kernels = []
    for distribution in mixture.distributions:
        if hasattr(distribution, "weights"):
            kernels.append({"rows": [numbers(row) for row in distribution.weights]})
        else:
            kernels.append({"mus": numbers(distribution.mu), "sigmas": numbers(distribution.sigma)})
    return {"weights": numbers(mixture.weights), "kernels": kernels}


def log_ratios(below, above, points):
    ratios = []
    for at in range(0, len(next(iter(points.values()))), 4):
        few = {name: values[at : at + 4] for name, values in points.items()}
        ratios += numbers(below.log_pdf(few) - above.log_pdf(few))
    return ratios


def expectation(sampler, study, trial, space, rng):
    known = [t for t in study._get_trials(deepcopy=False, use_cache=False)
             if t.state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING) and t.number != trial.number]
    finished = sum(t.state != TrialState.RUNNING for t in known)
    gamma = tpe.default_gamma if len(study.directions) == 1 else tpe.default_gamma_multiobjective
    below, above = tpe._split_trials(study, known, gamma(finished))
    good = sampler._build_parzen_estimator(study, space, below, handle_below=True)
    other = sampler._build_parzen_estimator(study, space, above, handle_below=False)
    points = {name: np.array([d.to_internal_repr(draw_value(d, rng)) for _ in range(12)]) for name, d in space.items()}
    return {
        "domain": {name: distribution_to_json(d) for name, d in space.items()},
        "below": [t.number for t in below], "above": [t.number for t in above],
        "good": estimator(good, space), "other": estimator(other, space),
        "points": {name: numbers(values) for name, values in points.items()},
        "ratios": log_ratios(good, other, points),
    }


def describe(trial):
    entry = {"state": trial.state.value, "values": trial.values,
             "params": {n: trial.distributions[n].to_internal_repr(v) for n, v in trial.params.items()}}
    if trial.system_attrs:
        entry["attrs"] = trial.system_attrs
    if trial.intermediate_values:
        entry["reported"] = trial.intermediate_values
    return entry


def golden(seed):
    rng = random.Random(seed)
    directions, trials, group = make_history(rng)
    study = optuna.create_study(directions=directions)
    for trial in trials:
        study._storage.create_new_trial(study._study_id, trial)
    sampler = TPESampler(group=group, multivariate=None, seed=seed)
    asked = study._storage.get_trial(study._storage.create_new_trial(study._study_id))
    jointly = sampler.infer_relative_search_space(study, asked)
    if group:
        domains = [{n: d for n, d in sorted(part.items()) if not d.single()} for part in sampler._search_space_group.search_spaces]
    elif jointly:
        domains = [jointly]
    else:
        every = {name: d for trial in trials for name, d in trial.distributions.items()}
        domains = [{name: d} for name, d in sorted(every.items())]
    distributions = {name: distribution_to_json(d) for trial in trials for name, d in trial.distributions.items()}
    return {
        "seed": seed, "directions": [d.value for d in study.directions], "group": group, "joint": bool(jointly),
        "distributions": distributions, "trials": [describe(trial) for trial in trials],
        "expected": [expectation(sampler, study, asked, domain, rng) for domain in domains if domain],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    histories = [golden(arguments.seed * 1_000_003 + index) for index in range(arguments.count)]
    text = json.dumps({"optuna": optuna.__version__, "histories": histories}, separators=(",", ":"))
    with gzip.GzipFile(arguments.out, "wb", mtime=0) as file:
        file.write(text.encode())
    print(f"{arguments.count} histories, {os.path.getsize(arguments.out) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
