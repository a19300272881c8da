"""The five estimators from their definitions, one step at a time: what the vectorised ones must equal."""

import math
from collections import defaultdict, deque

EPSILON = 1e-6


def scaled(values, norm, spare=1):
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1 or max(values) - min(values) < 1e-12:
        return [0.0] * n
    if norm == "mean":
        return [v - mean for v in values]
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - spare))
    return [(v - mean) / (deviation + EPSILON) for v in values]


def by(keys, values, norm, spare=1):
    """Values standardised within equal keys."""
    members = defaultdict(list)
    for i, key in enumerate(keys):
        members[key].append(i)
    out = [0.0] * len(values)
    for rows in members.values():
        for i, v in zip(rows, scaled([values[i] for i in rows], norm, spare), strict=True):
            out[i] = v
    return out


class Reference:
    """Trajectories as lists of labels; everything is keyed by (group, label)."""

    def __init__(self, runs, outcomes, groups, valid=None, gamma=0.95):
        self.runs, self.outcomes, self.groups, self.gamma = runs, outcomes, groups, gamma
        self.steps = [(i, k) for i, run in enumerate(runs) for k in range(len(run))]
        self.valid = valid or [True] * len(self.steps)

    def node(self, i, k):
        return (self.groups[i], self.runs[i][k])

    def after(self, i, k):
        last = k + 1 == len(self.runs[i])
        return (self.groups[i], "end", self.outcomes[i]) if last else self.node(i, k + 1)

    def values(self, visit="every", win=None):
        seen = defaultdict(list)
        for i, run in enumerate(self.runs):
            once = set()
            for k in range(len(run)):
                node = self.node(i, k)
                if visit == "first" and node in once:
                    continue
                once.add(node)
                seen[node].append(self.gamma ** (len(run) - k) * self.outcomes[i])
        value = {node: sum(got) / len(got) for node, got in seen.items()}
        for i, run in enumerate(self.runs):
            worth = self.outcomes[i]
            if win is not None:
                worth = win if worth >= win else 0.0
            value[self.after(i, len(run) - 1)] = worth
        return value

    def episode(self, norm):
        earned = [
            self.outcomes[i] - 0.1 * (not ok) for (i, _), ok in zip(self.steps, self.valid, strict=True)
        ]
        return by([self.groups[i] for i, _ in self.steps], earned, norm)

    def to_go(self):
        return [self.gamma ** (len(self.runs[i]) - 1 - k) * self.outcomes[i] for i, k in self.steps]

    def grpo(self, norm, w):
        return self.episode(norm)

    def gigpo(self, norm, w):
        local = by([self.node(*s) for s in self.steps], self.to_go(), norm)
        return [a + w * b for a, b in zip(self.episode(norm), local, strict=True)]

    def hgpo(self, norm, w, history=2, power=1.0):
        total, weight = [0.0] * len(self.steps), [0.0] * len(self.steps)
        got = self.to_go()
        for depth in range(1, history + 2):
            rows = [r for r, (_, k) in enumerate(self.steps) if k + 1 >= depth]
            keys = []
            for r in rows:
                i, k = self.steps[r]
                keys.append((self.groups[i], tuple(self.runs[i][k - depth + 1 : k + 1])))
            part = by(keys, [got[r] for r in rows], norm, spare=0)
            for r, key, value in zip(rows, keys, part, strict=True):
                if keys.count(key) > 1:
                    total[r] += (depth + 1) ** power * value
                    weight[r] += (depth + 1) ** power
        return [w * t / m if m else 0.0 for t, m in zip(total, weight, strict=True)]

    def graphgpo(self, norm, w):
        score = []
        for i, k in self.steps:
            best = max(o for o, g in zip(self.outcomes, self.groups, strict=True) if g == self.groups[i])
            far = self.distance(self.after(i, k), best) if best > 0 else None
            score.append(0.0 if far is None else best * self.gamma**far)
        local = by([self.node(*s) for s in self.steps], score, norm)
        return [a + w * b for a, b in zip(self.episode(norm), local, strict=True)]

    def distance(self, start, best):
        goal = (start[0], "end", best)
        seen, queue = {start}, deque([(start, 0)])
        while queue:
            node, far = queue.popleft()
            if node == goal:
                return far
            for s in self.steps:
                if self.node(*s) == node and self.after(*s) not in seen:
                    seen.add(self.after(*s))
                    queue.append((self.after(*s), far + 1))
        return None

    def gains(self, visit="every", win=None):
        value = self.values(visit, win)
        return [value[self.after(*s)] - value[self.node(*s)] for s in self.steps]

    def g2po(self, norm, w, visit="every", win=None):
        value = self.values(visit, win)
        reached = [
            value[self.after(*s)] - 0.1 * (not ok) for s, ok in zip(self.steps, self.valid, strict=True)
        ]
        sibling = by([self.node(*s) for s in self.steps], reached, norm)
        edge = by([self.groups[i] for i, _ in self.steps], self.gains(visit, win), norm)
        episode = self.episode(norm)
        return [a + w * (b + c) for a, b, c in zip(episode, sibling, edge, strict=True)]
