"""Client telemetry (KIP-714): the metrics that clients push, for operators.

* ``clients``: the clients, the limits of their pushes, and their last metrics in bounded memory
* ``otlp``: reads the metrics of a push, in the format of OpenTelemetry
"""
