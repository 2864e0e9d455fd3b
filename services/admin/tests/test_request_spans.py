from __future__ import annotations

import httpx
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from room_admin.api import build
from room_common.telemetry.tracing import trace_with


async def test_requests_are_named_by_their_routes_and_others_by_their_method() -> None:
    exported = InMemorySpanExporter()
    end = trace_with("admin", "admin-1", SimpleSpanProcessor(exported), {})
    try:
        transport = httpx.ASGITransport(app=build())
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            await client.post("/api/v1/apply", json={}, headers={"traceparent": f"00-{'7a' * 16}-{'7b' * 8}-01"})
            await client.get("/api/v1/deliveries/some-secret")
            await client.get("/nothing/some-secret")
        spans = exported.get_finished_spans()
    finally:
        end()
    assert [span.name for span in spans] == ["POST /api/v1/apply", "GET /api/v1/deliveries/{delivery_id}", "GET"]
    assert [span.attributes["http.response.status_code"] for span in spans if span.attributes] == [401, 401, 404]
    assert spans[0].context is not None and spans[0].context.trace_id == int("7a" * 16, 16)
    assert "some-secret" not in "".join(span.to_json() for span in spans)
