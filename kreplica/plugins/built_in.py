"""Built-in plugins; ``racks``, ``assigned`` and ``allow-all`` are part of the broker instead."""

from kreplica.interfaces import IExtraListener, IMetricsReporter, IProduceInterceptor, Plugin

_PLACE = "kreplica.service.plugins"

agent_check = Plugin(
    "agent-check",
    IExtraListener,
    f"{_PLACE}.agent_check:AgentCheck",
    "Tells load balancers (HAProxy's agent-check) whether this broker can serve clients.",
    {"listen": "Where to listen, as host:port; 127.0.0.1:0 where it is not set."},
)

log_reporter = Plugin(
    "log",
    IMetricsReporter,
    f"{_PLACE}.log_reporter:LogReporter",
    "Writes chosen figures to the log, a line at a time.",
    {"names": "The figures' names, separated by commas; * at the end of one is any."},
)

required_headers = Plugin(
    "required-headers",
    IProduceInterceptor,
    f"{_PLACE}.required_headers:RequiredHeaders",
    "Refuses records that lack a header.",
    {
        "headers": "The headers' names, separated by commas.",
        "topics": "The topics, separated by commas, * at the end of one is any; all where it is not set.",
    },
)
