"""One seam for everybody who watches answers being given: metrics, spans, the record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from refork.serve.exchange import Exchange, Timeline
from refork.serve.metrics import Metrics
from refork.serve.record import ExchangeRecorder
from refork.serve.served import ActiveRequest, Asked
from refork.serve.settings import ServerSettings
from refork.serve.tracing import Tracing, tracing


@final
class Watch:
    """What a handler tells of one request while it works on it."""

    def __init__(self, recorder: ExchangeRecorder | None) -> None:
        self._recorder = recorder
        self.timeline = Timeline()
        self.exchange: Exchange | None = None

    async def ended(self, exchange: Exchange) -> None:
        """The answer is complete. Await it before the client gets its end: then it is on record, too.

        Raises:
            Refused: 503, it could not be recorded, and the server gives no unrecorded answers.
        """
        self.exchange = exchange
        if self._recorder is not None:
            await self._recorder.exchange(exchange)


@final
class Observers:
    """Metrics, spans and the record of one server; each may be absent, and none of them breaks an answer.

    (But for a strict recorder, whose purpose that is.)
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
        recorder: ExchangeRecorder | None = None,
    ) -> None:
        self.metrics = metrics
        self.tracing = tracing
        self.recorder = recorder

    @classmethod
    def of(cls, settings: ServerSettings) -> Observers:
        """Those that the settings ask for; close them when the server ends.

        Raises: TreeError for a tree that cannot be opened, MissingExtra, BadInput for what is no collector.
        """
        metrics = Metrics()
        spans = tracing(settings.otlp, content=settings.trace_content)
        recorder = None
        if settings.record is not None:
            recorder = ExchangeRecorder(
                settings.record, strict=settings.record_strict, wait_s=settings.record_s, metrics=metrics
            )
            metrics.watch("", recorder.gauges)
        return cls(metrics, spans, recorder)

    def close(self) -> None:
        """Write and send what waits. It may take seconds: call it from a thread that may wait."""
        if self.recorder is not None:
            self.recorder.close()
        if self.tracing is not None:
            self.tracing.close()

    @contextmanager
    def watch(self, call: ActiveRequest, asked: Asked) -> Iterator[Watch]:
        """Watch one prompt of a request from its admission to its last byte."""
        watch = Watch(self.recorder)
        span = None if self.tracing is None else self.tracing.begin(call, asked)
        error: BaseException | None = None
        try:
            yield watch
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self.metrics is not None:
                self.metrics.answer(call.model, watch.exchange, watch.timeline, _outcome(watch, error))
            if span is not None:
                span.end(watch.exchange, watch.timeline, error)


def _outcome(watch: Watch, error: BaseException | None) -> str:
    """Complete, left (the client did, or time was over), or error."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "left"
    if error is not None or watch.exchange is None:
        return "error"
    return "error" if any(c.finish == "error" for c in watch.exchange.choices) else "complete"
