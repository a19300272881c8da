"""Prometheus metrics of one server, in a registry of its own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, final

from refork.errors import MissingExtra
from refork.serve.exchange import Exchange, Timeline

#: What is read of an engine when metrics are asked for: running, waiting, kv_bytes, ...
Gauges: TypeAlias = Callable[[], Mapping[str, float]]

_log = logging.getLogger("refork.server")
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_GAUGES = {
    "running": "Answers that are being drawn: rows of the batch, or lanes in use.",
    "waiting": "Answers that have said nothing yet.",
    "kv_bytes": "Bytes of keys and values held.",
}


@final
class Metrics:
    """Counts and times of a server. What goes wrong in counting is logged, and breaks no answer.

    Raises: MissingExtra where prometheus-client is not installed (extra ``serve``).
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Histogram
        except ImportError as error:
            raise MissingExtra("prometheus-client", "serve") from error
        self._registry = CollectorRegistry()
        self._watched: dict[str, Gauges] = {}
        self._speculated: dict[str, tuple[int, int]] = {}

        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(f"refork_{name}", doc, labels, registry=self._registry)

        def histogram(name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"refork_{name}", doc, labels, registry=self._registry, buckets=buckets)

        self._requests = counter("requests", "HTTP requests.", "route", "method", "status")
        self._seconds = histogram("request_seconds", "Seconds of an HTTP request.", _LONG, "route")
        self._answers = counter("answers", "Answers, by how they ended.", "model", "outcome")
        self._tokens = counter("tokens", "Tokens of complete answers.", "model", "direction")
        self._queue = histogram("queue_seconds", "Seconds until its turn came.", _LONG, "model")
        self._first = histogram("time_to_first_token_seconds", "To the first token.", _LONG, "model")
        self._each = histogram("time_per_token_seconds", "Between tokens, a request's mean.", _SHORT, "model")
        self._drafted = counter("drafted_tokens", "Tokens that a drafter proposed.", "model")
        self._accepted = counter("accepted_tokens", "Proposed tokens that were kept.", "model")
        self._rounds = counter("speculative_rounds", "Rounds of drafting and verifying.", "model")
        self._records = counter("records", "Exchanges written to the tree, or failed.", "result")
        self._registry.register(_Reader(self._watched, self._speculated))

    def watch(self, model: str, gauges: Gauges) -> None:
        """Read ``gauges`` of a model whenever metrics are asked for: running, waiting, kv_bytes."""
        self._watched[model] = gauges

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One HTTP request ended."""
        with harmless():
            self._requests.labels(route, _method(method), str(status)).inc()
            self._seconds.labels(route).observe(seconds)

    def answer(self, model: str, exchange: Exchange | None, times: Timeline, outcome: str) -> None:
        """One answer ended, complete (``exchange``) or not."""
        with harmless():
            self._answers.labels(model, outcome).inc()
            if times.queued is not None:
                self._queue.labels(model).observe(times.queued)
            if times.first is not None:
                self._first.labels(model).observe(times.first)
            if (each := times.per_token) is not None:
                self._each.labels(model).observe(each)
            if exchange is not None:
                self._count(model, exchange)

    def _count(self, model: str, exchange: Exchange) -> None:
        for direction, count in (("in", exchange.counted_in), ("out", exchange.counted_out)):
            if count is not None:
                self._tokens.labels(model, direction).inc(count)
        rounds = sum(c.rounds for c in exchange.choices)
        if rounds:
            accepted = sum(c.accepted for c in exchange.choices)
            self._rounds.labels(model).inc(rounds)
            self._drafted.labels(model).inc(sum(c.drafted for c in exchange.choices))
            self._accepted.labels(model).inc(accepted)
            before = self._speculated.get(model, (0, 0))
            self._speculated[model] = (before[0] + rounds, before[1] + accepted)

    def recorded(self, result: str, exchanges: int = 1) -> None:
        """So many exchanges were ``written``, or ``failed`` to be."""
        with harmless():
            self._records.labels(result).inc(exchanges)

    def text(self) -> tuple[bytes, str]:
        """The exposition and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST


@final
class _Reader:
    """Reads the models' gauges when metrics are asked for."""

    def __init__(self, watched: Mapping[str, Gauges], speculated: Mapping[str, tuple[int, int]]) -> None:
        self._watched = watched
        self._speculated = speculated

    def describe(self) -> list[Any]:
        """Nothing is read at registration."""
        return []

    def collect(self) -> Iterator[Any]:
        """All gauges as they are now."""
        from prometheus_client.core import GaugeMetricFamily

        now: dict[str, Mapping[str, float]] = {}
        for model, gauges in list(self._watched.items()):
            with harmless():
                now[model] = gauges()
        for name in sorted({name for found in now.values() for name in found}):
            family = GaugeMetricFamily(f"refork_{name}", _GAUGES.get(name, name), labels=["model"])
            for model, found in now.items():
                if name in found:
                    family.add_metric([model], found[name])
            yield family
        tau = GaugeMetricFamily("refork_tau", "Tokens a speculative round settles, mean.", labels=["model"])
        for model, (rounds, accepted) in list(self._speculated.items()):
            tau.add_metric([model], (rounds + accepted) / rounds)
        yield tau


def _method(name: str) -> str:
    """A method as a label; whatever clients invent is one."""
    return name if name in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE") else "other"


@contextlib.contextmanager
def harmless(message: str = "a metric could not be counted") -> Iterator[None]:
    """Log what goes wrong in watching, and go on: no answer may break by it."""
    try:
        yield
    except Exception:
        _log.exception(message)
