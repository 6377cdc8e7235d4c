"""Connections on sockets: reads frames, sends responses, and bounds both.

* ``listeners``: ``Server``, which binds the listeners and stops in order; ``connections``: the open connections
* ``epoll_transport``: the transport in production; ``accepted_socket``: its base class, which uses little memory
* ``twisted_transport``: for reactors without file descriptors
* ``tls_transport``, ``tls_socket``: the transport of TLS connections, and its encryption
* ``read_turns``: shares time between clients; ``control_priority``: serves the controller and replicas first
* ``frame_buffers``: frames that arrive in several reads; ``partial_frames``: limits on their memory
* ``outgoing``, ``outgoing_buffers``: responses that are being sent; ``flush_scope``: sends several together
* ``page_prefetch``: reads cold file ranges into memory outside the reactor
"""
