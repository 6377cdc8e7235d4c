"""Health of brokers and of the cluster: one report for the API, the commands, the dashboard and the metrics."""
