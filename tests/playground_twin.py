"""The playground once more, slowly, in NumPy: written from the equations, not from the JavaScript.

`matrix(setting)` trains one setting and returns the accuracy matrix; the page must give the same to the last image. Only the
random numbers and the order of the draws are copied. Gradients are those of whole batches, by matrix calculus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TRAIN, TEST, BATCH, MOMENTUM, TASKS = 70, 36, 16, 0.9, 5
MASK = 0xFFFFFFFF


# --- random numbers ------------------------------------------------------------------------------------------------


def _hash(text: str, start: int) -> int:
    for letter in text.encode():
        start = ((start ^ letter) * 16777619) & MASK
    return start


class Draw:
    """Uniform numbers in [0, 1) that belong to one name (sfc32)."""

    def __init__(self, seed: int, task: int, epoch: int, purpose: str) -> None:
        name = f"{seed}/{task}/{epoch}/{purpose}"
        self.a = _hash(name, 2166136261)
        self.b = _hash(name, self.a)
        self.c = _hash(name, self.b)
        self.count = 1
        for _ in range(16):
            self()

    def __call__(self) -> float:
        t = (self.a + self.b + self.count) & MASK
        self.count = (self.count + 1) & MASK
        self.a = self.b ^ (self.b >> 9)
        self.b = (self.c + (self.c << 3)) & MASK
        self.c = ((((self.c << 21) | (self.c >> 11)) & MASK) + t) & MASK
        return t / 2**32

    def permutation(self, n: int) -> list[int]:
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = int(self() * (i + 1))
            order[i], order[j] = order[j], order[i]
        return order


# --- the network ---------------------------------------------------------------------------------------------------


class Weights:
    """Named layers (W [outputs, inputs], b [outputs]) with gradients and velocities."""

    def __init__(self, setting: dict[str, Any]) -> None:
        cm, cil, seed = setting["method"] == "cm", setting["scenario"] == "cil", setting["seed"]
        self.value: dict[tuple[str, int], list[Array]] = {}
        self._add("hidden", 0, 32, 64, seed)
        for i in range(1 if cil and not cm else TASKS):
            self._add("head", i, 2, 32, seed)
        for i in range(TASKS):
            if cil and not cm:
                self._add("output", i, 2, 2, seed)
            if cil and cm and setting["projectors"]:
                self._add("scale", i, 2, 2, seed)
                self._add("shift", i, 2, 2, seed)
        self.restart()

    def _add(self, name: str, task: int, outputs: int, inputs: int, seed: int) -> None:
        draw, bound = Draw(seed, task, 0, name), 1 / np.sqrt(inputs)
        numbers = np.array([(2 * draw() - 1) * bound for _ in range(outputs * inputs + outputs)])
        self.value[name, task] = [numbers[: outputs * inputs].reshape(outputs, inputs), numbers[outputs * inputs :]]

    def restart(self) -> None:
        self.velocity = {key: [np.zeros_like(one) for one in pair] for key, pair in self.value.items()}
        self.no_gradient()

    def no_gradient(self) -> None:
        self.gradient = {key: [np.zeros_like(one) for one in pair] for key, pair in self.value.items()}

    def copy(self) -> dict[tuple[str, int], list[Array]]:
        return {key: [one.copy() for one in pair] for key, pair in self.value.items()}

    def __call__(self, name: str, task: int, x: Array, old: dict[tuple[str, int], list[Array]] | None = None) -> Array:
        W, b = (old or self.value)[name, task]
        return x @ W.T + b

    def back(self, name: str, task: int, x: Array, dy: Array) -> Array:
        """Gradients of a layer; -> dx"""
        self.gradient[name, task][0] += dy.T @ x
        self.gradient[name, task][1] += dy.sum(0)
        return dy @ self.value[name, task][0]

    def step(self, rate: float) -> None:
        for key, pair in self.value.items():
            for k in (0, 1):
                self.velocity[key][k] = MOMENTUM * self.velocity[key][k] + self.gradient[key][k]
                pair[k] -= rate * self.velocity[key][k]


def _softmax(z: Array) -> Array:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _apart(e: Array, c: Array) -> tuple[Array, Array]:
    """Distances [n, K] and their slopes by e [n, K, 2], 0 where both coincide."""
    difference = e[:, None] - c[None]
    d = np.sqrt((difference**2).sum(-1))
    return d, np.divide(difference, d[..., None], out=np.zeros_like(difference), where=d[..., None] > 0)


# --- a run ---------------------------------------------------------------------------------------------------------


class Twin:
    """One setting from beginning to end."""

    def __init__(self, setting: dict[str, Any], pixels: NDArray[np.int64]) -> None:
        self.setting, self.cm, self.cil = setting, setting["method"] == "cm", setting["scenario"] == "cil"
        self.x = (pixels - 4.9) / 6
        order = setting["order"]
        if order == "seed":
            self.order = Draw(setting["seed"], 0, 0, "order").permutation(10)
        else:
            self.order = list(range(10)) if order == "natural" else [int(digit) for digit in order]
        self.w = Weights(setting)
        self.memory: list[tuple[int, int]] = []
        self.centroids: list[Array] = []
        self.kept: list[tuple[Any, Any]] = []
        self.t = 0
        self.parts = [self._split(i) for i in range(TASKS)]

    def _split(self, task: int) -> dict[str, list[tuple[int, int]]]:
        out: dict[str, list[tuple[int, int]]] = {"train": [], "support": [], "test": []}
        for k in (0, 1):
            label = 2 * task + k
            first = self.order[label] * (TRAIN + TEST)
            size = (self.setting["support"] - k + 1) // 2 if self.cm else 0
            support = Draw(self.setting["seed"], label, 0, "support").permutation(TRAIN)[:size]
            out["support"] += [(first + j, label) for j in support]
            out["train"] += [(first + j, label) for j in range(TRAIN) if j not in support]
            out["test"] += [(first + TRAIN + j, label) for j in range(TEST)]
        return out

    def matrix(self) -> list[list[float]]:
        R = []
        for self.t in range(TASKS):
            self.past = self.w.copy()
            self.w.restart()
            for epoch in range(self.setting["epochs"]):
                for rows in self._batches(epoch):
                    self.w.no_gradient()
                    self._loss(np.array([row for row, _ in rows]), np.array([label for _, label in rows]))
                    self.w.step(self.setting["lr"])
            self._end()
            R.append([self._accuracy(j) for j in range(self.t + 1)])
        return R

    # -- batches

    def _batches(self, epoch: int) -> list[list[tuple[int, int]]]:
        method, train = self.setting["method"], self.parts[self.t]["train"]
        parts = [(train, BATCH)]
        if method == "cumulative":
            parts = [([one for part in self.parts[: self.t + 1] for one in part["train"]], BATCH)]
        elif self.memory and method == "er" and self.cil:
            parts = [(train, BATCH // 2), (self.memory, BATCH // 2)]
        elif self.memory:
            past = [[one for one in self.memory if one[1] // 2 == i] for i in range(self.t)]
            share, rest = divmod(BATCH, self.t + 1)
            parts = [(part, share + (rank < rest)) for rank, part in enumerate([train, *past])]
        steps = -(-len(parts[0][0]) // parts[0][1])
        batches: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
        for rank, (images, size) in enumerate(parts):
            draw = Draw(self.setting["seed"], self.t, epoch, f"shuffle {rank}")
            order: list[int] = []
            while len(order) < (len(images) if rank == 0 else steps * size):
                order += draw.permutation(len(images))
            order = order[: len(images)] if rank == 0 else order
            for s in range(steps):
                batches[s] += [images[j] for j in order[s * size : (s + 1) * size]]
        return batches

    def _end(self) -> None:
        train, method = self.parts[self.t]["train"], self.setting["method"]
        if self.cm:
            self.centroids.append(self._current()[0])
        if method == "er" or (self.cm and self.cil):
            mixed = [train[j] for j in Draw(self.setting["seed"], self.t, 0, "exemplars").permutation(len(train))]
            share, rest = divmod(self.setting["memory"], 2 * self.t + 2)
            pool = self.memory + mixed
            kept = [[one for one in pool if one[1] == k][: share + (k < rest)] for k in range(2 * self.t + 2)]
            self.memory = [one for part in kept for one in part]
        if method == "ewc":
            importance = None
            for row, label in train:
                self.w.no_gradient()
                self._plain(np.array([row]), np.array([label]))
                squares = {key: [g**2 / len(train) for g in pair] for key, pair in self.w.gradient.items()}
                if importance is None:
                    importance = squares
                else:
                    for key, pair in squares.items():
                        importance[key] = [a + b for a, b in zip(importance[key], pair, strict=True)]
            self.kept.append((self.w.copy(), importance))

    # -- losses: only their gradients are needed

    def _features(self, x: Array, old: Any = None) -> Array:
        return np.maximum(self.w("hidden", 0, x, old), 0)

    def _features_back(self, x: Array, h: Array, dh: Array) -> None:
        self.w.back("hidden", 0, x, dh * (h > 0))

    def _loss(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        (self._centroids_matching if self.cm else self._plain)(rows, labels)
        for weights, importance in self.kept:
            for key, pair in self.w.value.items():
                for k in (0, 1):
                    moved = pair[k] - weights[key][k]
                    self.w.gradient[key][k] += 2 * self.setting["strength"] * importance[key][k] * moved

    def _plain(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        x, n = self.x[rows], len(rows)
        h = self._features(x)
        if self.cil:
            e = self.w("head", 0, h)
            z = np.concatenate([self.w("output", i, e) for i in range(self.t + 1)], 1)
            dz = (_softmax(z) - np.eye(z.shape[1])[labels]) / n
            de = sum(self.w.back("output", i, e, dz[:, 2 * i : 2 * i + 2]) for i in range(self.t + 1))
            dh = self.w.back("head", 0, h, de)
        else:
            dh = np.zeros_like(h)
            for i in np.unique(labels // 2):
                of = labels // 2 == i
                z = self.w("head", i, h[of])
                dh[of] = self.w.back("head", i, h[of], (_softmax(z) - np.eye(2)[labels[of] - 2 * i]) / n)
        self._features_back(x, h, dh)

    def _current(self) -> tuple[Array, Array, Array, Array]:
        """Current centroids (eq. 1), the share of each support image in each [2, S], support images and features."""
        support = self.parts[self.t]["support"]
        x = self.x[[row for row, _ in support]]
        h = self._features(x)
        share = np.stack([np.array([label == 2 * self.t + k for _, label in support], float) for k in (0, 1)])
        share /= share.sum(1, keepdims=True)
        return share @ self.w("head", self.t, h), share, x, h

    def _centroids_matching(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        x, t, n = self.x[rows], self.t, len(rows)
        h = self._features(x)
        e = [self.w("head", i, h) for i in range(t + 1)]
        de = [np.zeros_like(one) for one in e]
        c, share, xs, hs = self._current()
        if self.cil and t:
            m, anchors = self._merge(e), self._anchors([*self.centroids, c])
            dm, da = self._nearest_back(m, anchors, labels)
            for i in range(t + 1):
                de[i] += self._project_back(i, e[i], dm / (t + 1))
                slope = self._project_back(i, [*self.centroids, c][i], da[2 * i : 2 * i + 2])
            dc = slope  # of the last one, the current task's
        else:
            own, dc = self._nearest_back(e[t], c, labels - 2 * t)
            de[t] += own
        if t:
            old = self._features(x, self.past)
            for i in range(t):  # eq. 4
                before = self.w("head", i, old, self.past)
                d = np.sqrt(((e[i] - before) ** 2).sum(1, keepdims=True))
                unit = np.divide(e[i] - before, d, out=np.zeros_like(e[i]), where=d > 0)
                de[i] += self.setting["lam"] * unit / (t * n)
        dh = sum(self.w.back("head", i, h, de[i]) for i in range(t + 1))
        dhs = self.w.back("head", t, hs, share.T @ dc)
        self._features_back(x, h, dh)
        self._features_back(xs, hs, dhs)

    def _nearest_back(self, e: Array, c: Array, labels: NDArray[np.int64]) -> tuple[Array, Array]:
        """Slopes of the mean of minus log softmax(-d) at the true class (eqs 2 and 3), by e and by c."""
        d, unit = _apart(e, c)
        slope = (np.eye(len(c))[labels] - _softmax(-d)) / len(e)  # by d
        return (slope[..., None] * unit).sum(1), -(slope[..., None] * unit).sum(0)

    def _project(self, i: int, e: Array) -> Array:
        if not self.setting["projectors"]:
            return e
        r = np.maximum(e, 0)
        return e / (1 + np.exp(-self.w("scale", i, r))) + self.w("shift", i, r)

    def _project_back(self, i: int, e: Array, dq: Array) -> Array:
        if not self.setting["projectors"]:
            return dq
        r = np.maximum(e, 0)
        a = 1 / (1 + np.exp(-self.w("scale", i, r)))
        dr = self.w.back("scale", i, r, dq * e * a * (1 - a)) + self.w.back("shift", i, r, dq)
        return dq * a + dr * (e > 0)

    def _merge(self, e: list[Array]) -> Array:
        return sum(self._project(i, one) for i, one in enumerate(e)) / len(e)

    def _anchors(self, c: list[Array]) -> Array:
        return np.concatenate([self._project(i, one) for i, one in enumerate(c)])

    # -- test

    def _accuracy(self, j: int) -> float:
        test = self.parts[j]["test"]
        h, labels = self._features(self.x[[row for row, _ in test]]), np.array([label for _, label in test])
        first = 0 if self.cil else 2 * j
        if not self.cm:
            e = self.w("head", 0 if self.cil else j, h)
            z = np.concatenate([self.w("output", i, e) for i in range(self.t + 1)], 1) if self.cil else e
        elif self.cil and self.t:
            z = -_apart(self._merge([self.w("head", i, h) for i in range(self.t + 1)]), self._anchors(self.centroids))[0]
        else:
            i = 0 if self.cil else j
            z = -_apart(self.w("head", i, h), self.centroids[i])[0]
        return float(100 * (z.argmax(1) + first == labels).mean())


def matrix(setting: dict[str, Any], pixels: NDArray[np.int64]) -> list[list[float]]:
    """The accuracy matrix of a setting, in percent; row i has i + 1 numbers. pixels 0 ... 16, [1060, 64]"""
    return Twin(setting, pixels).matrix()
