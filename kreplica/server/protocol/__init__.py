"""Passes each frame to its handler, and sends the responses in the order of the requests.

* ``connection``: order and limits of the requests and responses of one client, without I/O
* ``dispatch``: finds and calls the handler of a frame; ``handler_table``: the table; ``features``: advertised features
* ``request``: a request as its handler sees it; ``responses``: shared parts of responses
* ``limits``: limits of connections, frames and requests; ``client_load``: totals by client address
* ``control_admission``: rejects commands that are not from the elected controller
* ``principals``: principal of a request; ``metrics``: counters; ``server_context``: resources of one broker
"""
