"""A Grafana dashboard of one pool, as its JSON. Pure."""

from __future__ import annotations

import json
from typing import Any

from osrdyne_infra.monitoring.alerts import selector

#: Width and height of a panel, in Grafana's units; a row has 24.
WIDTH, HEIGHT = 12, 8


def text(pool: str, namespace: str) -> str:
    """Return the dashboard of a pool. Where the data is, is chosen on the page."""
    of = selector(pool, namespace)
    panels = [
        ("Daemons that act", f"sum(osrdyne_leader{of})", "leaders", "short"),
        ("Keys by state", f"max by (state) (osrdyne_keys{of})", "{{state}}", "short"),
        ("Messages in the pool's queues", f"max by (queue) (osrdyne_queue_messages{of})", "{{queue}}", "short"),
        ("Orphans, each second", f"sum by (outcome) (rate(osrdyne_orphans_total{of}[5m]))", "{{outcome}}", "ops"),
        (
            "Time until an orphan is forwarded, 95th percentile",
            f"histogram_quantile(0.95, sum by (le) (rate(osrdyne_forward_seconds_bucket{of}[5m])))",
            "95 %",
            "s",
        ),
        (
            "Cold start, 95th percentile",
            f"histogram_quantile(0.95, sum by (le) (rate(osrdyne_cold_start_seconds_bucket{of}[5m])))",
            "95 %",
            "s",
        ),
        (
            "Wait for a free worker, 95th percentile",
            f"histogram_quantile(0.95, sum by (le) (rate(osrdyne_queue_seconds_bucket{of}[5m])))",
            "95 %",
            "s",
        ),
        ("Requests, each second", f"sum by (outcome) (rate(osrdyne_requests_total{of}[5m]))", "{{outcome}}", "ops"),
        ("Ends of workers, each second", f"sum by (how) (rate(osrdyne_worker_exits_total{of}[5m]))", "{{how}}", "ops"),
        (
            "Error replies, each second",
            f"sum by (status) (rate(osrdyne_error_replies_total{of}[5m]))",
            "{{status}}",
            "ops",
        ),
        ("Activity, each second", f"sum by (event) (rate(osrdyne_activity_events_total{of}[5m]))", "{{event}}", "ops"),
        ("Findings in the topology", f"max(osrdyne_topology_findings{of})", "findings", "short"),
    ]
    made = {
        "title": f"osrdyne {pool}",
        # At most 40 characters, and the same for the same pool.
        "uid": f"{namespace}-{pool}"[-40:],
        "tags": ["osrdyne"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": [_panel(number, *panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(made, indent=2)


def _panel(number: int, title: str, expression: str, legend: str, unit: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"w": WIDTH, "h": HEIGHT, "x": number % 2 * WIDTH, "y": number // 2 * HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}},
        "targets": [{"refId": "A", "datasource": source, "expr": expression, "legendFormat": legend}],
    }
