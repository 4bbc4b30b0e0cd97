"""A language server: diagnostics, hover and quick fixes from `torchsan check`, in any editor.

Needs the extra `lsp` (pygls). Text is checked as it stands in the editor, saved or not, without running it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from torchsan.check.analyse import analyse
from torchsan.check.choosing.config import Config, load
from torchsan.check.choosing.files import Source
from torchsan.errors import UsageError
from torchsan.fix.source import encoded
from torchsan.fix.static import with_fixes
from torchsan.model import Finding, Fix, Span
from torchsan.report.diffs import edits
from torchsan.report.words import remarks
from torchsan.rules import find_rule
from torchsan.version import __version__

SEVERITY = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


def _config(path: str) -> Config:
    """The project's settings; an editor has no place to complain about a bad file, so the usual ones then."""
    try:
        return load(os.path.dirname(path))
    except UsageError:
        return Config()


def find(path: str, text: str) -> list[Finding]:
    """What `torchsan check` says about a text. One that does not parse is being typed: nothing."""
    config = _config(path)
    found = analyse(Source(path, text)).findings
    return [f for f in found if config.wants(f.code) and (config.possible or f.certainty != "possible")]


class Server(LanguageServer):  # type: ignore[misc]
    """Keeps the findings of each open document."""

    def __init__(self) -> None:
        super().__init__("torchsan", __version__)
        self.findings: dict[str, list[Finding]] = {}

    def check(self, uri: str) -> None:
        document = self.workspace.get_text_document(uri)
        self.findings[uri] = find(document.path or uri, document.source)
        diagnostics = [self._diagnostic(document, finding) for finding in self.findings[uri]]
        self._publish(uri, diagnostics)

    def forget(self, uri: str) -> None:
        self.findings.pop(uri, None)
        self._publish(uri, [])

    def _publish(self, uri: str, diagnostics: list[types.Diagnostic]) -> None:
        params = types.PublishDiagnosticsParams(uri, diagnostics)
        self.text_document_publish_diagnostics(params)

    def range_of(self, document: TextDocument, span: Span) -> types.Range:
        """A span as the client counts: from 0, in its own units."""
        ours = types.Range(
            types.Position(span.line - 1, span.column - 1),
            types.Position(span.end_line - 1, max(span.end_column - 1, 0)),
        )
        return document.position_codec.range_to_client_units(document.lines, ours)

    def _diagnostic(self, document: TextDocument, finding: Finding) -> types.Diagnostic:
        others = [span for span in finding.spans if span is not finding.primary]
        return types.Diagnostic(
            range=self.range_of(document, finding.primary),
            message="\n".join([finding.message, *remarks(finding)]),
            severity=SEVERITY[finding.level],
            code=finding.code,
            source="torchsan",
            related_information=[
                types.DiagnosticRelatedInformation(
                    types.Location(document.uri, self.range_of(document, span)), span.label
                )
                for span in others
            ],
        )

    def at(self, uri: str, wanted: types.Range) -> Iterator[Finding]:
        """The findings of a document whose marked place meets a range."""
        document = self.workspace.get_text_document(uri)
        for finding in self.findings.get(uri, []):
            place = self.range_of(document, finding.primary)
            if place.start <= wanted.end and wanted.start <= place.end:
                yield finding


def _page(finding: Finding) -> str:
    rule = find_rule(finding.code)
    return f"**{finding.code} {finding.name}**\n\n{rule.page}" if rule else finding.message


def _edits(fix: Fix) -> list[types.TextEdit]:
    """The edits of a fix that changes one file."""
    files = list(edits(fix.diff).values())
    return [
        types.TextEdit(
            types.Range(types.Position(edit.line - 1, 0), types.Position(edit.line - 1 + edit.removed, 0)),
            edit.inserted,
        )
        for edit in (files[0] if len(files) == 1 else ())
    ]


def _ignoring(document: TextDocument, finding: Finding) -> types.TextEdit:
    """A comment that keeps the finding quiet, to be given its reason by the user."""
    line = finding.primary.end_line - 1
    end = document.position_codec.client_num_units(document.lines[line].rstrip("\r\n"))
    here = types.Position(line, end)
    return types.TextEdit(types.Range(here, here), f"  # torchsan: ignore[{finding.code}] reason")


def _mending(document: TextDocument, finding: Finding, found: list[Finding]) -> list[tuple[str, list[types.TextEdit]]]:
    """The edit that mends a finding; looked for when it is asked for, not at every key."""
    path = document.path or document.uri
    [mended] = with_fixes(path, encoded(document.source), [finding], found)
    return [(f"{fix.title} ({fix.applicability})", _edits(fix)) for fix in mended.fixes if fix.diff]


def _actions(server: Server, uri: str, finding: Finding) -> Iterator[types.CodeAction]:
    document = server.workspace.get_text_document(uri)
    changes = _mending(document, finding, server.findings[uri])
    changes.append((f"Ignore {finding.code} on this line", [_ignoring(document, finding)]))
    for title, text_edits in changes:
        if text_edits:
            yield types.CodeAction(
                title=title,
                kind=types.CodeActionKind.QuickFix,
                edit=types.WorkspaceEdit(changes={uri: text_edits}),
            )


def make_server() -> Server:
    server = Server()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)  # type: ignore[untyped-decorator]
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.check(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)  # type: ignore[untyped-decorator]
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.check(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)  # type: ignore[untyped-decorator]
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)  # type: ignore[untyped-decorator]
    def hover(params: types.HoverParams) -> types.Hover | None:
        here = types.Range(params.position, params.position)
        pages = [_page(finding) for finding in server.at(params.text_document.uri, here)]
        if not pages:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(pages)))

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]))  # type: ignore[untyped-decorator]
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        found = server.at(uri, params.range)
        return [action for finding in found for action in _actions(server, uri, finding)]

    return server
