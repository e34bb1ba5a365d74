"""What Prometheus and Grafana look at: `objects` of the cluster, `alerts` and a `dashboard`."""
