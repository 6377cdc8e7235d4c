"""Health of the brokers and of the cluster: one report that the API, the commands, the dashboard and metrics show."""
