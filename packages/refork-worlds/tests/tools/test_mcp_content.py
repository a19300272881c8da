"""Results of MCP tools as text: what differs reads differently, and nothing is said twice."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mcp")

import mcp_types as types

from refork_worlds.tools.mcp import McpWorld
from refork_worlds.tools.mcp_client import Connection, Server, result_text

RED, BLUE = b"red picture", b"blue picture"


def encoded(data):
    return base64.b64encode(data).decode()


def short(data):
    return hashlib.sha256(data).hexdigest()[:16]


def picture(data, kind="image/png"):
    return types.ImageContent(type="image", data=encoded(data), mime_type=kind)


def shown(*blocks, structured=None, linked=None):
    return result_text(
        types.CallToolResult(content=list(blocks), structured_content=structured), linked or {}
    )


def text(words):
    return types.TextContent(type="text", text=words)


def test_pictures_and_sounds_are_named_by_kind_type_size_and_digest():
    assert shown(picture(RED)) == f"[image image/png, 11 bytes, sha256 {short(RED)}]"
    assert shown(picture(RED)) != shown(picture(BLUE))
    assert shown(picture(RED)) != shown(picture(RED, "image/gif"))
    sound = types.AudioContent(type="audio", data=encoded(b"la"), mime_type="audio/wav")
    assert shown(text("heard"), sound) == f"heard\n[audio audio/wav, 2 bytes, sha256 {short(b'la')}]"
    # Lines of base64 are base64; what is none is told, and told apart.
    wrapped = types.ImageContent(type="image", data="cmVkIHBp\nY3R1cmU=\n", mime_type="image/png")
    assert shown(wrapped) == shown(picture(RED))
    broken = types.ImageContent(type="image", data="%%", mime_type="image/png")
    assert shown(broken) == f"[image image/png, 2 bytes, sha256 {short(b'%%')} of what is no base64]"


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_two_pictures_read_the_same_only_where_they_are(one, other):
    assert (shown(picture(one)) == shown(picture(other))) is (one == other)


def test_resources_embedded_and_linked():
    note = types.TextResourceContents(uri="note:///a", text="two\nlines", mime_type="text/plain")
    assert shown(types.EmbeddedResource(type="resource", resource=note)) == (
        "[resource note:///a, text/plain]\ntwo\nlines"
    )
    empty = types.TextResourceContents(uri="note:///b", text="")
    assert shown(types.EmbeddedResource(type="resource", resource=empty)) == (
        "[resource note:///b, no MIME type]\n"
    )
    blob = types.BlobResourceContents(uri="file:///c", blob=encoded(RED), mime_type="image/png")
    assert shown(types.EmbeddedResource(type="resource", resource=blob)) == (
        f"[resource file:///c, image/png, 11 bytes, sha256 {short(RED)}]"
    )
    link = types.ResourceLink(type="resource_link", uri="file:///d", name="a\n[b", size=7)
    assert shown(link) == "[resource link file:///d, a [b, no MIME type, 7 bytes as the server says]"
    read = shown(link, linked={"file:///d": BLUE})
    assert read == f"[resource link file:///d, a [b, no MIME type, 12 bytes, sha256 {short(BLUE)}]"


def test_structured_content_is_shown_where_no_text_says_it():
    assert shown(structured={"a": 1}) == '{"a":1}'
    assert shown(text('{"b": 2,\n "a": 1}'), structured={"a": 1, "b": 2}) == '{"b": 2,\n "a": 1}'
    assert shown(text("done"), structured={"rows": 3}) == 'done\n{"rows":3}'
    assert shown(picture(RED), structured={"n": 1}).endswith(']\n{"n":1}')
    for value, blocks in (("five", ["five"]), (5, ["5"]), ([1, "b"], ["1", "b"]), ([1, 2], ["[1, 2]"])):
        assert shown(*map(text, blocks), structured={"result": value}) == "\n".join(blocks)
    assert shown(text("a"), structured={"result": ["a", "b"]}) == 'a\n{"result":["a","b"]}'
    assert shown(structured={"result": []}) == '{"result":[]}'


def linking(contents):
    """A server whose tool answers with a link, and what is behind it."""
    from mcp.server import Server as Bare

    async def called(_, __):
        link = types.ResourceLink(type="resource_link", uri="file:///p", name="p", mime_type="image/png")
        return types.CallToolResult(content=[link, link])

    async def read(_, asked):
        if contents is None:
            raise ValueError("no such resource")
        blob = types.BlobResourceContents(uri=asked.uri, blob=encoded(contents))
        return types.ReadResourceResult(contents=[blob])

    async def tools(_, __):
        return types.ListToolsResult(tools=[types.Tool(name="look", input_schema={"type": "object"})])

    async def resources(_, __):
        return types.ListResourcesResult(resources=[])

    return Bare(
        "links",
        on_call_tool=called,
        on_list_tools=tools,
        on_read_resource=read,
        on_list_resources=resources,
    )


def test_what_is_behind_a_link_decides_what_is_read():
    said = []
    for contents in (RED, BLUE, RED, None):
        connection = Connection(Server(command="unused"), linking(contents))
        said.append(connection.call("look", {}).text)
        connection.close()
    assert said[0] == said[2] != said[1]
    assert f"11 bytes, sha256 {short(RED)}" in said[0]
    assert said[3] == "\n".join(["[resource link file:///p, p, image/png]"] * 2)


def test_two_pictures_are_two_observations_of_an_episode():
    from mcp.server import Server as Bare

    async def called(_, asked):
        return types.CallToolResult(content=[picture(RED if asked.name == "red" else BLUE)])

    async def listed(_, __):
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("red", "blue")]
        return types.ListToolsResult(tools=tools)

    world = McpWorld(Server(command="unused"), target=Bare("p", on_call_tool=called, on_list_tools=listed))
    episode = world.start(world.tasks("train", 1)[0], 0)
    seen = [episode.step(f'{{"name":"{name}"}}') for name in ("red", "blue", "red")]
    episode.close()
    assert seen[0] == seen[2] != seen[1]
    assert seen[0].text == f"[image image/png, 11 bytes, sha256 {short(RED)}]"
