"""Scores by the packages that people use: ROUGE by rouge-score, classes by scikit-learn.

    pip install rouge-score scikit-learn numpy
    python tools/reference/metrics.py crates/train/tests/goldens

Writes rouge.jsonl and classes.jsonl, always the same.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support
from sklearn.utils.class_weight import compute_class_weight

WORDS = "the a cat dog sat on mat and ran Away to-day 42 3.5 don't it's well, good! (yes) \"no\" A_b e-mail".split()


def texts(rng):
    """Pairs of texts: some alike, some not, with punctuation, numbers, repeated words and nothing at all."""
    yield "", ""
    yield "the cat", ""
    yield "", "the cat"
    yield "...", "the cat"
    yield "the the the", "the cat the"
    for _ in range(60):
        truth = rng.choices(WORDS, k=rng.randint(1, 14))
        written = [word for word in truth if rng.random() < 0.8]
        for _ in range(rng.randint(0, 4)):
            written.insert(rng.randint(0, len(written)), rng.choice(WORDS))
        if rng.random() < 0.3:
            rng.shuffle(written)
        yield " ".join(written), " ".join(truth)


def rouge(folder):
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    lines = []
    for written, truth in texts(random.Random(1)):
        scores = scorer.score(truth, written)
        line = {"written": written, "truth": truth}
        lines.append(line | {name: float(score.fmeasure) for name, score in scores.items()})
    write(folder / "rouge.jsonl", lines)


def classes(folder):
    """Single labels (`truth`, `claimed`) and several at once (`truth`, `claimed` as rows of 0 and 1)."""
    rng = np.random.default_rng(1)
    lines = []
    for count in [2, 2, 3, 5, 9]:
        rows = int(rng.integers(1, 60))
        present = rng.integers(1, count + 1)
        truth = rng.integers(0, present, rows)
        claimed = np.where(rng.random(rows) < 0.6, truth, rng.integers(0, count, rows))
        labels = list(range(count))
        precision, recall, f1, support = precision_recall_fscore_support(truth, claimed, labels=labels, zero_division=0)
        seen = np.unique(truth)
        lines.append({
            "kind": "single", "classes": count, "truth": truth.tolist(), "claimed": claimed.tolist(),
            "accuracy": accuracy_score(truth, claimed), "f1": f1_score(truth, claimed, average="macro", zero_division=0),
            "precision": precision.tolist(), "recall": recall.tolist(), "class_f1": f1.tolist(),
            "support": support.tolist(), "confusion": confusion_matrix(truth, claimed, labels=labels).tolist(),
            "balanced": dict(zip(map(str, seen.tolist()),
                                 compute_class_weight("balanced", classes=seen, y=truth).tolist())),
        })
    for count in [2, 4, 7]:
        rows = int(rng.integers(1, 40))
        truth = (rng.random((rows, count)) < 0.3).astype(int)
        claimed = np.where(rng.random((rows, count)) < 0.8, truth, 1 - truth)
        truth[:, -1], claimed[:, -1] = 0, 0  # never true, never claimed
        lines.append({
            "kind": "multi", "classes": count, "truth": truth.tolist(), "claimed": claimed.tolist(),
            "accuracy": accuracy_score(truth, claimed), "f1": f1_score(truth, claimed, average="macro", zero_division=0),
        })
    write(folder / "classes.jsonl", lines)


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    goldens = Path(sys.argv[1])
    rouge(goldens)
    classes(goldens)
