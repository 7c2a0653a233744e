"""Connections of the service that uvicorn itself would keep open without end."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT_SECONDS = 20.0
"""How long a connection may be there before its first request has begun; uvicorn counts it among those in use."""


class PromptProtocol(H11Protocol):
    """uvicorn's protocol, but that a connection without a request is closed after a while."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silent = self.loop.call_later(SILENT_SECONDS, self._close_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.cancel()
        super().connection_lost(exc)

    def _close_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
