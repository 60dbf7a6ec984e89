"""Verdict -> one self-contained HTML file: opens from disk, asks for nothing, runs nothing but its own script.

The front end (`forkpoint/web`) is put in as it is; the verdict and its picture travel inside as data.
"""

import base64

from forkpoint.model.verdict import Verdict
from forkpoint.report.html.document import render_document
from forkpoint.report.html.live import Live
from forkpoint.report.html.page import Page, assemble, read_page
from forkpoint.report.html.payload import encode

__all__ = ["Live", "encode", "render_html"]


def render_html(verdict: Verdict, page: Page | None = None, live: Live | None = None) -> str:
    """All that comes from input is ASCII: escaped inside JSON, or compressed in base64. `page`: another front end.

    `live`: for a page that is served, which then loads itself again when there is news.
    """
    picture = "" if verdict.picture is None else base64.b64encode(encode(verdict.picture)).decode("ascii")
    return assemble(page or read_page(), f"forkpoint: {verdict.cause}", render_document(verdict), picture, live)
