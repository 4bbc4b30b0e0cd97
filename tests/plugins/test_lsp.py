"""A session of a real client with the language server, over its pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="needs pygls: pip install 'torchsan[lsp]'")

from lsprotocol import types
from pygls.lsp.client import BaseLanguageClient

SRC = Path(__file__).parents[2] / "src"
URI = "file:///project/train.py"
BAD = """\
import torch

x = torch.ones(3, requires_grad=True)
𝒉𝒉 = torch.exp(x); 𝒉𝒉 += 1
𝒉𝒉.sum().backward()
"""


class Client(BaseLanguageClient):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__("editor", "1")
        self.published: asyncio.Queue[Any] = asyncio.Queue()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(list(params.diagnostics))

    async def diagnostics(self) -> list[types.Diagnostic]:
        found: list[types.Diagnostic] = await asyncio.wait_for(self.published.get(), 60)
        return found


async def _session() -> dict[str, Any]:
    """Open a bad file, ask about it, mend it, close it; what the server said each time."""
    client = Client()
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    await client.start_io(sys.executable, "-m", "torchsan", "lsp", env=environment)
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities()))
    document = types.TextDocumentIdentifier(URI)
    said: dict[str, Any] = {}
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(URI, "python", 1, BAD)))
    said["opened"] = await client.diagnostics()
    place = said["opened"][0].range
    said["hover"] = await client.text_document_hover_async(types.HoverParams(document, place.start))
    nowhere = types.Position(0, 0)
    said["no hover"] = await client.text_document_hover_async(types.HoverParams(document, nowhere))
    context = types.CodeActionContext(said["opened"])
    said["actions"] = await client.text_document_code_action_async(types.CodeActionParams(document, place, context))
    for version, text in enumerate(("def broken(:", BAD, BAD.replace("𝒉𝒉 += 1", "𝒉𝒉 = 𝒉𝒉 + 1")), 2):
        change = types.TextDocumentContentChangeWholeDocument(text)
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(version, URI), [change])
        )
        said[f"changed {version}"] = await client.diagnostics()
    client.text_document_did_close(types.DidCloseTextDocumentParams(document))
    said["closed"] = await client.diagnostics()
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return asyncio.run(_session())


def test_a_hazard_is_marked_where_it_is(said: dict[str, Any]) -> None:
    [diagnostic] = said["opened"]
    assert diagnostic.code == "TS101"
    assert diagnostic.severity == types.DiagnosticSeverity.Error
    # In UTF-16, as the client counts by default: each 𝒉 is two units.
    assert (diagnostic.range.start.line, diagnostic.range.start.character) == (3, 21)
    assert diagnostic.range.end.character == 30
    assert any("saved here" in place.message for place in diagnostic.related_information)


def test_hover_shows_the_rules_page(said: dict[str, Any]) -> None:
    assert "TS101 saved-value-overwritten" in said["hover"].contents.value
    assert "How to fix." in said["hover"].contents.value
    assert said["no hover"] is None


def test_a_finding_can_be_ignored_by_a_quick_fix(said: dict[str, Any]) -> None:
    action = said["actions"][-1]
    assert action.title == "Ignore TS101 on this line"
    [edit] = action.edit.changes[URI]
    assert edit.new_text == "  # torchsan: ignore[TS101] reason"
    assert (edit.range.start.line, edit.range.start.character) == (3, 30)


def test_a_finding_can_be_mended_by_a_quick_fix(said: dict[str, Any]) -> None:
    action = said["actions"][0]
    assert action.title == "𝒉𝒉 = 𝒉𝒉 + 1 (safe)"
    lines = BAD.splitlines(keepends=True)
    for edit in action.edit.changes[URI]:
        first, last = edit.range.start, edit.range.end
        assert (first.character, last.character) == (0, 0)
        lines[first.line : last.line] = [edit.new_text]
    assert "".join(lines) == BAD.replace("𝒉𝒉 += 1", "𝒉𝒉 = 𝒉𝒉 + 1")


def test_text_is_checked_as_it_changes(said: dict[str, Any]) -> None:
    assert said["changed 2"] == []
    assert [diagnostic.code for diagnostic in said["changed 3"]] == ["TS101"]
    assert said["changed 4"] == []
    assert said["closed"] == []
