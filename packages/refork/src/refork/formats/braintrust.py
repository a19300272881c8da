"""Spans of Braintrust: rows of its logs and experiments, as its API, its queries and its exports give them.

A file is JSON lines or an array of rows, or pages of them (``{"events": [...]}`` of the API, ``{"data":
[...]}`` of a query). A row that is a trace's summary has no spans below it, and so no calls of models.

Source: ``braintrust`` 0.48 (rows of its logger and its wrappers), Braintrust's reference of its API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from refork.formats.base import Head
from refork.formats.conversation import count_of, mapping
from refork.formats.grouped import Grouped
from refork.formats.otlp.batches import Span
from refork.formats.platform_spans import Kind, PlatformReader, graded, nanoseconds, platform_span, tool_names
from refork.tree.records import Remark
from refork.tree.score import Producer
from refork.types import Json

_KINDS: Final[dict[str, Kind]] = {"llm": "call", "tool": "tool", "task": "agent"}
_PAGES: Final = ("events", "data", "rows")
_TAKEN: Final = frozenset({
    "id", "span_id", "root_span_id", "span_parents", "span_attributes", "input", "output", "scores", "metrics",
    "metadata", "comments",
})  # fmt: skip
_PRODUCER: Final = Producer("braintrust")


@final
class Braintrust(PlatformReader):
    """Reads spans of Braintrust; those of traces without a model are counted and left out."""

    name, label = "braintrust", "Braintrust"
    order = 66
    elsewhere = re.compile(r'"key": "[^"]*", "type": "braintrust_attachment"')

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a span."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            return any(map(_is_span, self.unpack(first, "")[:1]))
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and '"root_span_id"' in start and '"span_attributes"' in start

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The rows of a page; itself where it is one."""
        pages = (mapping(body).get(key) for key in _PAGES if not _is_span(body))
        return next((list(rows) for rows in pages if isinstance(rows, list)), [body])

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep spans and their scores by their traces."""
        for row in self.unpack(body, where):
            if not _is_span(row):
                said = "comment" in mapping(row)
                what = "comments: a tree has no place for them" if said else "this is no span of Braintrust"
                yield Remark("lost" if said else "skipped", what, where)
                continue
            trace, id_ = str(row["root_span_id"]), str(row["span_id"])
            if not grouped.add(trace, id_, row):
                yield Remark("skipped", "another span of the same id", where)
                continue
            for name, value in mapping(row.get("scores")).items():
                if value is not None:
                    grouped.note(trace, id_, graded(_PRODUCER, name, value))

    def spans(self, raws: Sequence[Json], trace: str) -> Iterator[Span | Remark]:
        """The spans of a trace."""
        offered = tool_names(mapping(raw.get("metadata")).get("tools") for raw in raws)
        for raw in raws:
            about = mapping(raw.get("span_attributes"))
            kind = _KINDS.get(str(about.get("type")))
            if kind != "call" and about.get("name") in offered and about.get("type") != "task":
                kind = "tool"
            yield _span(raw, trace, about, kind)


def _is_span(body: Any) -> bool:
    one = mapping(body)
    known = bool(one.get("root_span_id") and one.get("span_id"))
    return known and ("span_attributes" in one or "span_parents" in one)


def _span(raw: Json, trace: str, about: Mapping[str, Any], kind: Kind | None) -> Span:
    metrics, metadata = mapping(raw.get("metrics")), mapping(raw.get("metadata"))
    parents = raw.get("span_parents")
    error = raw.get("error")
    text = error.strip().rpartition("\n")[2] if isinstance(error, str) else error
    asked = raw.get("input")
    if kind == "call" and isinstance(asked, list) and metadata.get("instructions"):
        asked = {"input": asked, "instructions": metadata["instructions"]}
    measured = {key: value for key, value in metrics.items() if key not in ("start", "end")}
    return platform_span(
        str(raw["span_id"]), trace, parents[0] if isinstance(parents, list) and parents else None,
        about.get("name"), kind, (nanoseconds(metrics.get("start")), nanoseconds(metrics.get("end"))), asked,
        raw.get("output"),
        model=metadata.get("model"), tools=metadata.get("tools"),
        parameters=mapping(metadata.get("invocation_params")) or metadata if kind == "call" else None,
        tokens=(count_of(metrics, "prompt_tokens"), count_of(metrics, "completion_tokens")),
        money=metrics.get("estimated_cost"), error=text,
        rest={
            **{key: value for key, value in raw.items() if key not in _TAKEN},
            "metadata": {key: value for key, value in metadata.items() if kind != "call" or key != "tools"},
            "metrics": measured,
            "span_attributes": about,
        },
    )  # fmt: skip

